/* Term and vote, in a file of two slots that both hold the newest: the first is durable before the
 * second is touched, so a torn write leaves one whole, and so does later damage to either. */
#ifndef FL_RAFT_STORE_VOTE_H
#define FL_RAFT_STORE_VOTE_H

#include "raft/store_files.h"

struct fl_vote_file {
    int file;
    struct fl_vote vote;
};

/* Term 0, in a new file. */
int fl_vote_file__create(const struct fl_store_files *files);
/* Reads it; what was read may not be durable yet. FL_E_CORRUPT when neither slot is whole. */
int fl_vote_file__open(const struct fl_store_files *files, struct fl_vote_file *ret_file,
                       struct fl_store_fault *fault);
void fl_vote_file__close(const struct fl_store_files *files, struct fl_vote_file *file);
/* Durable when it returns; an error ends the process. */
void fl_vote_file__set(const struct fl_store_files *files, struct fl_vote_file *file, uint64_t term,
                       uint64_t voted_for);
/* Writes it again, with how far the log is durable. The first time it also repairs a slot that is
 * damaged or behind. Errors are told. */
int fl_vote_file__bind(const struct fl_store_files *files, struct fl_vote_file *file,
                       uint64_t log_segment, uint64_t log_end);

#endif
