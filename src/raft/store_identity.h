/* Whose directory it is: written last when one is made, so that a directory without it is either
 * unfinished or damaged, never in use. */
#ifndef FL_RAFT_STORE_IDENTITY_H
#define FL_RAFT_STORE_IDENTITY_H

#include "raft/store_files.h"

/* 0 when it is there and ours, with its life in `files`; FL_E_NOT_FOUND (no fault is set);
 * FL_E_WRONG_PEER; FL_E_CORRUPT; FL_E_VERSION; or what reading it gave. */
int fl_store__identity_check(struct fl_store_files *files, struct fl_store_fault *fault);
/* Durable when it returns, and so are the names of the other files in the directory. */
int fl_store__identity_write(const struct fl_store_files *files, struct fl_store_fault *fault);

#endif
