/* What a node counts for those who watch it: made of the machine's effects, in bounded memory
 * whatever the names are. Pure, like the node: the driver feeds it and says when.
 *
 * What is a rate or a duration is counted by the leader only, so that the sum over all nodes is the
 * cluster's; the names that occur most often are known to every node. */
#ifndef FL_NODE_METER_H
#define FL_NODE_METER_H

#include "base/hash.h"
#include "base/timing.h"
#include "node/message.h"

/* Each costs two histograms: fifty series for whoever scrapes. */
#define FL_METER_PREFIXES_MAX 32
#define FL_METER_PREFIX_BYTES 64
#define FL_METER_NAMES        20 /* of each list */
#define FL_METER_CAUSES       (FL_CAUSE_FORCED + 1)

/* A copy of everything: no pointers. */
struct fl_figures {
    struct fl_status_info status; /* without its texts */
    bool is_disk_full;
    uint64_t leaderships; /* how often it began to lead */

    uint64_t grants, queued, sessions_opened;
    uint64_t hold_ends[FL_METER_CAUSES], wait_ends[FL_METER_CAUSES], session_ends[FL_METER_CAUSES];
    struct fl_timing commit; /* from the proposal of an entry until it is applied */
    struct fl_timing write;  /* of a group of entries to the disk, until it is durable */
    uint64_t written_bytes;

    unsigned n_prefixes;
    struct fl_figures_prefix {
        char prefix[FL_METER_PREFIX_BYTES + 1]; /* "": every name that no other fits */
        struct fl_timing wait;                  /* for a grant; at once is 0 */
        struct fl_timing hold;
    } prefixes[FL_METER_PREFIXES_MAX + 1];

    unsigned n_busiest, n_contended;
    struct fl_figures_name {
        char name[FL_NAME_MAX + 1];
        double per_s;     /* acquires; of contended ones those that found it taken */
        uint32_t waiters; /* contended: when last looked at */
    } busiest[FL_METER_NAMES], contended[FL_METER_NAMES];
};

struct fl_meter;

/* `prefixes` is copied; longer and more than the limits are cut. */
struct fl_meter *fl_meter_new(const char *const *prefixes, unsigned n, struct fl_hash_key key);
void fl_meter_free(struct fl_meter *meter);

void fl_meter_effect(struct fl_meter *meter, const struct fl_effect *effect, bool is_leader);
void fl_meter_role(struct fl_meter *meter, bool is_leader);
/* At least every second: lets the past fade. */
void fl_meter_tick(struct fl_meter *meter, uint64_t now_ms);
/* Fills what the meter knows, and leaves the rest. */
void fl_meter_figures(const struct fl_meter *meter, struct fl_figures *figures);

#endif
