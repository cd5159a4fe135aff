/* Whom the node knows: one small file, written whole at each change, which are few. */
#ifndef FL_RAFT_STORE_PEERS_H
#define FL_RAFT_STORE_PEERS_H

#include "raft/store_files.h"

struct fl_peers_file {
    struct fl_known_peer *peers; /* owned */
    size_t n;
};

/* Not being there is fine: nobody is known yet. FL_E_CORRUPT. */
int fl_peers_file__open(const struct fl_store_files *files, struct fl_peers_file *ret_file,
                        struct fl_store_fault *fault);
void fl_peers_file__close(struct fl_peers_file *file);

#endif
