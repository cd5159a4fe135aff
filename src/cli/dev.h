/* `fencelock dev`: where its nodes live and listen. Kept in DIR/dev.json, so that a restart on the
 * same directory has the same ports and state. */
#ifndef FL_CLI_DEV_H
#define FL_CLI_DEV_H

#include <stdbool.h>
#include <sys/types.h>

#define DEV_NODES_MAX 9

struct dev_node {
    unsigned grpc_port, peer_port, http_port;
    pid_t pid;      /* 0: not running */
    int ready;      /* its standard output, until it said that it serves; -1: it did */
    char dir[1100]; /* DIR/nodes/N */
};

struct dev {
    char dir[1024];
    bool is_temporary; /* DIR is removed at the end */
    unsigned n_nodes;
    struct dev_node nodes[DEV_NODES_MAX]; /* node id: index + 1 */
    char endpoints[DEV_NODES_MAX * 24];
};

/* Reads DIR/dev.json, or chooses ports and writes it. `n_nodes` and `port` are what was asked for;
 * 0 nodes or -1: nothing was. False: complained. */
bool dev_prepare(struct dev *dev, const char *dir, unsigned n_nodes, int port);
/* Removes a temporary directory. */
void dev_clean_up(const struct dev *dev);

#endif
