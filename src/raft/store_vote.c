#include "raft/store_vote.h"

#include "base/bugs.h"
#include "base/error.h"
#include "base/log.h"

#define VOTE_NAME "vote"

int fl_vote_file__create(const struct fl_store_files *files)
{
    static const struct fl_vote none;
    uint8_t data[FL_VOTE_FILE_SIZE] = {0};

    for (unsigned slot = 0; slot < 2; slot++)
        fl_format_vote_encode(files->seed, slot, &none, data + slot * FL_VOTE_SLOT_SPACING);
    return fl_store__replace_file(files, VOTE_NAME, data, sizeof data);
}

/* One slot after the other: both are never at risk at once. */
static int write_slots(const struct fl_store_files *files, const struct fl_vote_file *file)
{
    struct fl_disk *disk = files->disk;

    for (unsigned slot = 0; slot < 2; slot++) {
        uint8_t data[FL_VOTE_SLOT_SIZE];
        int r;

        fl_format_vote_encode(files->seed, slot, &file->vote, data);
        r = fl_disk_write_all(disk, file->file, data, sizeof data, slot * FL_VOTE_SLOT_SPACING);
        if (r == 0 && !FL_BUG(STORE_VOTE_NOT_SYNCED))
            r = disk->sync(disk, file->file);
        if (r < 0)
            return r;
    }
    return 0;
}

static int read_slots(const struct fl_store_files *files, struct fl_vote_file *file,
                      struct fl_store_fault *fault)
{
    struct fl_vote votes[2];
    bool whole[2];

    for (unsigned slot = 0; slot < 2; slot++) {
        uint8_t data[FL_VOTE_SLOT_SIZE];
        int r = fl_disk_read_all(files->disk, file->file, data, sizeof data,
                                 slot * FL_VOTE_SLOT_SPACING);

        if (r < 0 && r != FL_E_CORRUPT)
            return fl_store__refuse_io(files, fault, r, "reading", VOTE_NAME);
        whole[slot] = r == 0 && fl_format_vote_decode(files->seed, slot, data, &votes[slot]);
    }
    if (!whole[0] && !whole[1])
        return fl_store__refuse(fault, FL_E_CORRUPT,
                                "%s/vote: both copies (offset 0 and %u) are damaged, so this node "
                                "could vote twice in a term; %s",
                                files->directory, FL_VOTE_SLOT_SPACING, FL_STORE_REMEDY);
    if (!whole[0] || !whole[1])
        fl_warn("store",
                "%s/vote: the copy at offset %u is damaged; writing it again from the other",
                files->directory, whole[0] ? FL_VOTE_SLOT_SPACING : 0);
    file->vote = votes[0];
    if (!whole[0] || (whole[1] && votes[1].serial > votes[0].serial))
        file->vote = votes[1];
    return 0;
}

int fl_vote_file__open(const struct fl_store_files *files, struct fl_vote_file *ret_file,
                       struct fl_store_fault *fault)
{
    struct fl_vote_file file;
    int r;

    file.file = fl_store__open_file(files, VOTE_NAME, FL_DISK_READ | FL_DISK_WRITE);
    if (file.file == FL_E_NOT_FOUND)
        return fl_store__refuse(fault, FL_E_CORRUPT,
                                "%s/vote is missing, so this node could vote twice in a term; %s",
                                files->directory, FL_STORE_REMEDY);
    if (file.file < 0)
        return fl_store__refuse_io(files, fault, file.file, "opening", VOTE_NAME);
    r = read_slots(files, &file, fault);
    if (r < 0) {
        files->disk->close(files->disk, file.file);
        return r;
    }
    *ret_file = file;
    return 0;
}

void fl_vote_file__close(const struct fl_store_files *files, struct fl_vote_file *file)
{
    if (file->file >= 0)
        files->disk->close(files->disk, file->file);
}

void fl_vote_file__set(const struct fl_store_files *files, struct fl_vote_file *file, uint64_t term,
                       uint64_t voted_for)
{
    int r;

    file->vote.serial++;
    file->vote.term = term;
    file->vote.voted_for = voted_for;
    r = write_slots(files, file);
    if (r < 0)
        fl_store__fail(files, "writing", VOTE_NAME, r);
}

int fl_vote_file__bind(const struct fl_store_files *files, struct fl_vote_file *file,
                       uint64_t log_segment, uint64_t log_end)
{
    file->vote.serial++;
    file->vote.log_segment = log_segment;
    file->vote.log_end = log_end;
    return write_slots(files, file);
}
