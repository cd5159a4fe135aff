#include "raft/store_peers.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "raft/store_state.h"

#define PEERS_NAME "peers"
/* Far more ids than a cluster ever uses up. */
#define PEERS_SIZE_MAX (1024u * 1024)

static int read_file(const struct fl_store_files *files, int file, struct fl_buf *ret_data)
{
    int64_t size = files->disk->size(files->disk, file);

    if (size < 0)
        return (int)size;
    if (size > PEERS_SIZE_MAX)
        return FL_E_CORRUPT;
    fl_buf_reserve(ret_data, (size_t)size);
    ret_data->len = (size_t)size;
    return fl_disk_read_all(files->disk, file, ret_data->data, (size_t)size, 0);
}

int fl_peers_file__open(const struct fl_store_files *files, struct fl_peers_file *ret_file,
                        struct fl_store_fault *fault)
{
    struct fl_buf data = FL_BUF_INIT;
    int file = fl_store__open_file(files, PEERS_NAME, FL_DISK_READ), r;

    *ret_file = (struct fl_peers_file){0};
    if (file == FL_E_NOT_FOUND)
        return 0;
    if (file < 0)
        return fl_store__refuse_io(files, fault, file, "opening", PEERS_NAME);
    r = read_file(files, file, &data);
    files->disk->close(files->disk, file);
    if (r == 0)
        r = fl_format_peers_decode(&files->identity, data.data, data.len, &ret_file->peers,
                                   &ret_file->n);
    fl_buf_deinit(&data);
    if (r == FL_E_CORRUPT)
        return fl_store__refuse(fault, r, "%s/peers, offset 0: damaged (checksum); %s",
                                files->directory, FL_STORE_REMEDY);
    return r < 0 ? fl_store__refuse_io(files, fault, r, "reading", PEERS_NAME) : 0;
}

void fl_peers_file__close(struct fl_peers_file *file)
{
    free(file->peers);
    *file = (struct fl_peers_file){0};
}

/* On a full disk the knowledge lives in memory until the next change. */
static void save(struct fl_store *store)
{
    const struct fl_store_files *files = &store->files;
    struct fl_buf data = FL_BUF_INIT;
    int r;

    fl_format_peers_encode(&files->identity, store->peers.peers, store->peers.n, &data);
    r = fl_store__replace_file(files, PEERS_NAME, data.data, data.len);
    if (r == 0)
        r = fl_store__sync_directory(files);
    fl_buf_deinit(&data);
    if (r == FL_E_NOSPACE)
        fl_warn("store", "%s/peers cannot be written: the disk is full", files->directory);
    else if (r < 0)
        fl_store__fail(files, "writing", PEERS_NAME, r);
}

static struct fl_known_peer *find(const struct fl_store *store, uint64_t id)
{
    for (size_t i = 0; i < store->peers.n; i++) {
        if (store->peers.peers[i].id == id)
            return &store->peers.peers[i];
    }
    return NULL;
}

static struct fl_known_peer *find_or_add(struct fl_store *store, uint64_t id)
{
    struct fl_peers_file *file = &store->peers;
    struct fl_known_peer *peer = find(store, id);

    if (peer != NULL)
        return peer;
    file->peers = fl_xrealloc(file->peers, (file->n + 1) * sizeof *file->peers);
    file->peers[file->n] = (struct fl_known_peer){.id = id};
    return &file->peers[file->n++];
}

uint64_t fl_store_life(const struct fl_store *store)
{
    return store->files.identity.life;
}

enum fl_peer_verdict fl_store_meet_peer(struct fl_store *store, uint64_t id, uint64_t life)
{
    struct fl_known_peer *peer = find_or_add(store, id);

    if (peer->is_removed)
        return FL_PEER_REMOVED;
    if (peer->life != 0 || life == 0)
        return peer->life == life ? FL_PEER_WELCOME : FL_PEER_STRANGER;
    peer->life = life;
    save(store);
    return FL_PEER_WELCOME;
}

void fl_store_remove_peer(struct fl_store *store, uint64_t id)
{
    struct fl_known_peer *peer = find_or_add(store, id);

    if (peer->is_removed)
        return;
    peer->is_removed = true;
    save(store);
}

bool fl_store_is_removed(const struct fl_store *store, uint64_t id)
{
    const struct fl_known_peer *peer = find(store, id);

    return peer != NULL && peer->is_removed;
}

const struct fl_known_peer *fl_store_known_peers(const struct fl_store *store, size_t *ret_n)
{
    *ret_n = store->peers.n;
    return store->peers.peers;
}
