/* Engines in one process, on one seed: each with a disk, a clock that drifts and pauses, on a
 * network that loses, repeats, delays and cuts. engine_faults.h says what happens to them. */
#ifndef FL_TESTS_SIM_ENGINE_WORLD_H
#define FL_TESTS_SIM_ENGINE_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "engine_checks.h"
#include "engine_disk.h"
#include "raft/engine.h"
#include "timeline.h"

#define WORLD_NODES_MAX  7
#define WORLD_ROUNDS_MAX 64
#define WORLD_MAIL_MAX   65536

struct world;

struct world_node {
    struct world *world;
    struct fl_engine *engine; /* NULL: down */
    unsigned id;
    uint64_t life;          /* counts starts and crashes */
    uint64_t busy_until_us; /* a pause, or a vote being written */
    int64_t drift_ppm;
    struct disk disk;
    uint64_t disk_factor;
    bool disk_is_busy;
    uint64_t tick_at_us; /* the next tick on the timeline; UINT64_MAX: none */
    unsigned ticks_at_once;
    struct checked_log log;
    uint64_t next_round, round_floor[WORLD_ROUNDS_MAX];
};

struct world_counts {
    uint64_t leaders, crashes, adds, promotions, removals, leader_removals, transfers, installs,
        snapshots, confirmed;
};

struct world {
    struct timeline time;
    struct checks checks;
    struct world_node nodes[WORLD_NODES_MAX + 1]; /* [0] is not used */
    unsigned n;
    bool is_verbose;
    uint32_t rules_off;
    /* The network. */
    bool cut[WORLD_NODES_MAX + 1][WORLD_NODES_MAX + 1];
    unsigned drop, repeat, late; /* per mille */
    uint64_t delay_us;
    struct fl_raft_message *mail[WORLD_MAIL_MAX]; /* in flight; a slot is an event's `a` */
    unsigned free_mail[WORLD_MAIL_MAX], n_free_mail, n_mail;
    /* How its engines are set up. */
    unsigned voters, election_ms;
    uint64_t trailing, snapshot_every;
    bool has_faults;
    unsigned lost; /* this one never comes back; 0: none */
    struct world_counts counts;
};

#define WORLD_STORY(w, ...)                                                                        \
    do {                                                                                           \
        if ((w)->is_verbose) {                                                                     \
            printf("%10.3f  ", (double)(w)->time.now_us / 1e6);                                    \
            printf(__VA_ARGS__);                                                                   \
            printf("\n");                                                                          \
        }                                                                                          \
    } while (0)

/* A cluster as the seed wants it, all of it up, with two servers that wait to be added. */
struct world *world_new(uint64_t seed, uint32_t rules_off, bool is_verbose);
void world_free(struct world *w);
void world_run(struct world *w, uint64_t us);

static inline uint64_t world_below(struct world *w, uint64_t bound)
{
    return fl_random_below(&w->time.random, bound);
}
static inline bool world_chance(struct world *w, unsigned per_mille)
{
    return fl_random_chance(&w->time.random, per_mille, 1000);
}

/* The node's clock; never goes back. */
uint64_t world_ms(const struct world_node *n);
const char *world_address(uint64_t id);
/* A leader that is up and not paused, of whatever term; NULL: there is none. */
struct world_node *world_leader(struct world *w);
void world_crash(struct world_node *n);
void world_start(struct world_node *n);
/* After the engine was given anything: when it wants to tick may have changed. */
void world_touched(struct world_node *n);

#endif
