/* A member: one node of one group in this process. The only place where consensus, judgement, disk
 * and network meet; each of them is tested without the others. Runs on the loop that it is given.
 */
#ifndef FL_RAFT_MEMBER_H
#define FL_RAFT_MEMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/loop.h"
#include "node/meter.h"

struct fl_member;

struct fl_member_peer {
    uint64_t id;
    const char *address; /* HOST:PORT of its peer port */
};

struct fl_member_config {
    uint64_t node_id;
    const char *cluster; /* its name; the cluster id is derived from it and the bootstrap members */
    const char *directory;
    const char *listen;                 /* peer port */
    const struct fl_member_peer *peers; /* the bootstrap members, itself included */
    unsigned n_peers;
    unsigned election_timeout_ms; /* 0: 500 */
    uint64_t snapshot_every;      /* entries between snapshots; 0: 65536 */
    /* An empty directory begins a new cluster. Without it an empty directory is refused: a node
     * that lost its data must not vote again under its id. */
    bool bootstrap;
    bool join; /* an empty directory waits until a leader that was told to add this node sends */
    const char *version;
    const char *const *meter_prefixes; /* names are measured by these (node/meter.h) */
    unsigned n_meter_prefixes;
};

/* Opens the store (or bootstraps it), loads the newest snapshot, listens, and takes part. On
 * failure `why` (512 bytes) says what, where, and what to do. */
int fl_member_new(struct fl_loop *loop, const struct fl_member_config *config,
                  struct fl_member **ret_member, char *why);
/* Hands leadership over, waits for the store, closes; `done` follows once, and the object is gone.
 */
void fl_member_stop(struct fl_member *member, void (*done)(void *ctx), void *ctx);
unsigned fl_member_port(const struct fl_member *member);

/* A gateway in this process: frames to it go through `send` (called on the member's loop); frames
 * from it through fl_member_link_receive() on the member's loop. */
typedef void (*fl_member_link_send)(void *ctx, const void *data, size_t len);
uint64_t fl_member_link_open(struct fl_member *member, fl_member_link_send send, void *ctx);
void fl_member_link_receive(struct fl_member *member, uint64_t link, const void *data, size_t len);
void fl_member_link_close(struct fl_member *member, uint64_t link);

/* Its figures as of a moment ago, if there are newer ones than those that were taken last; else
 * NULL. Any one thread. Freed with free(). */
struct fl_figures *fl_member_take_figures(struct fl_member *member);

#endif
