#include "raft/store_identity.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

#define IDENTITY_NAME "identity"

static void format_identity(const struct fl_store_identity *identity, char *out, size_t size)
{
    char cluster[33];

    for (unsigned i = 0; i < 16; i++)
        snprintf(cluster + 2 * (size_t)i, 3, "%02x", identity->cluster_id[i]);
    snprintf(out, size, "node %" PRIu64 " of group %" PRIu32 " of cluster %s", identity->node_id,
             identity->group_id, cluster);
}

static int compare(const struct fl_store_files *files, const struct fl_store_identity *found,
                   struct fl_store_fault *fault)
{
    char theirs[128], ours[128];

    if (memcmp(found->cluster_id, files->identity.cluster_id, 16) == 0 &&
        found->group_id == files->identity.group_id && found->node_id == files->identity.node_id)
        return 0;
    format_identity(found, theirs, sizeof theirs);
    format_identity(&files->identity, ours, sizeof ours);
    return fl_store__refuse(fault, FL_E_WRONG_PEER,
                            "%s belongs to %s, not to %s: give each node a directory of its own",
                            files->directory, theirs, ours);
}

int fl_store__identity_check(struct fl_store_files *files, struct fl_store_fault *fault)
{
    struct fl_store_identity found;
    uint8_t data[FL_IDENTITY_SIZE];
    int file = fl_store__open_file(files, IDENTITY_NAME, FL_DISK_READ);
    int r;

    if (file == FL_E_NOT_FOUND)
        return file;
    if (file < 0)
        return fl_store__refuse_io(files, fault, file, "opening", IDENTITY_NAME);
    r = fl_disk_read_all(files->disk, file, data, sizeof data, 0);
    files->disk->close(files->disk, file);
    if (r < 0 && r != FL_E_CORRUPT)
        return fl_store__refuse_io(files, fault, r, "reading", IDENTITY_NAME);
    if (r == 0)
        r = fl_format_identity_decode(data, &found);
    if (r == FL_E_VERSION)
        return fl_store__refuse(fault, r,
                                "%s was written by a newer version of fencelock: start that one",
                                files->directory);
    if (r < 0)
        return fl_store__refuse(fault, r, "%s/identity, offset 0: damaged (checksum); %s",
                                files->directory, FL_STORE_REMEDY);
    r = compare(files, &found, fault);
    if (r == 0)
        files->identity.life = found.life;
    return r;
}

int fl_store__identity_write(const struct fl_store_files *files, struct fl_store_fault *fault)
{
    uint8_t data[FL_IDENTITY_SIZE];
    int r;

    /* The others first: whoever sees the identity must find them. */
    r = fl_store__sync_directory(files);
    if (r == 0) {
        fl_format_identity_encode(&files->identity, data);
        r = fl_store__replace_file(files, IDENTITY_NAME, data, sizeof data);
    }
    if (r == 0)
        r = fl_store__sync_directory(files);
    return r < 0 ? fl_store__refuse_io(files, fault, r, "writing", IDENTITY_NAME) : 0;
}
