/* Watches: holder changes of a name or a prefix, in log order, without a gap.
 *
 * The answer to WATCH says that it stands. With from_index 0 it is then told who holds what
 * (FL_PUSH_WATCH with `present`), FL_PUSH_CAUGHT_UP, and each change from there on. With from_index
 * it goes on from the ring of recent changes that every node keeps: changes of that very index come
 * again, since a link may break between two changes of one entry, and a change that is told twice
 * is harmless (it has a token) where a gap is not. When the ring has lost some of them
 * FL_PUSH_WATCH_END tells it, and the client begins again with 0.
 *
 * The leader serves watches, each begun after a confirmation. When it loses leadership they all
 * end, and the gateway goes on at the next leader from the last index that it was told. */
#ifndef FL_NODE_WATCH_H
#define FL_NODE_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/map.h"
#include "core/machine.h"
#include "node/message.h"

/* Changes that are kept, and their bytes: whichever is reached first. A gateway that comes back
 * within seconds finds its place again; memory stays bounded whatever the names are. */
#define FL_WATCH_CHANGES_MAX 65536u
#define FL_WATCH_BYTES_MAX   (8u << 20)
/* Watches on this node: memory. */
#define FL_WATCHES_MAX 100000u
/* Those of prefixes: every change is compared with each of them. */
#define FL_WATCH_PREFIXES_MAX 256u
/* A watch begins with at most so many present holders, so that it cannot hold up heartbeats; a
 * larger prefix is listed by page. */
#define FL_WATCH_PRESENT_MAX 20000u

struct fl_node;
struct link;
struct watch_chunk;

struct watches {
    struct watch_chunk *first, *last; /* the ring: changes in order */
    size_t n_changes, n_bytes;
    uint64_t lost_index; /* changes up to this index may be gone */
    struct watch_chunk *entry_chunk;
    size_t entry_at;         /* where the changes of the entry being applied begin */
    struct fl_map names;     /* watches of one name */
    struct fl_list prefixes; /* watches of a prefix */
    size_t n, n_prefixes;
};

void fl_node__watches_init(struct fl_node *node);
void fl_node__watches_deinit(struct fl_node *node);

/* On every node: a grant or an end of a hold. */
void fl_node__watch_record(struct fl_node *node, const struct fl_effect *effect);
/* The entry is applied: tells its changes to who watches, and forgets the oldest. */
void fl_node__watch_entry_done(struct fl_node *node);
/* The machine was replaced: what led to it is not known. */
void fl_node__watch_lost(struct fl_node *node, uint64_t index);

/* False when there are too many. */
bool fl_node__watch_is_allowed(const struct fl_node *node, const struct fl_request *request);
/* Confirmed and applied: answers the request and begins. */
void fl_node__watch_begin(struct fl_node *node, struct link *link,
                          const struct fl_request *request);
void fl_node__watch_end(struct fl_node *node, struct link *link, uint64_t tag);
/* All of one link; with `why`, told so. */
void fl_node__watch_end_all(struct fl_node *node, struct link *link, const char *why);

#endif
