/* A region in one process, on one seed: nodes, gateways, applications, a network and a fenced store
 * in virtual time, with everything about them drawn from the seed. */
#ifndef FL_TESTS_SIM_REGION_H
#define FL_TESTS_SIM_REGION_H

#include "app.h"
#include "door.h"
#include "fence.h"
#include "linear.h"
#include "net.h"
#include "replica.h"
#include "stranger.h"
#include "truth.h"

#define REGION_DOORS_MAX 3
#define REGION_APPS_MAX  8

/* Every one of these may be drawn or not. */
struct region_options {
    unsigned nodes, doors, apps; /* nodes: with those that may join */
    struct replica_config replica;
    struct app_config app;
    struct fl_router_config router;
    uint64_t faults_us, fault_every_us, change_every_us;
    uint64_t delay_us;
    bool has_stranger;
    bool clocks_are_off; /* beyond the bound: only the fence holds */
    bool has_cuts, has_crashes, has_pauses, has_power_cuts, has_loss, has_changes, has_slow_disks,
        has_disk_errors, has_full_disks;
};

struct region {
    struct timeline time;
    struct judge judge;
    struct truth truth;
    struct net net;
    struct fence fence;
    struct linear linear;
    struct region_options options;
    struct replica replicas[REPLICAS_MAX + 1]; /* [0] is not used */
    struct door doors[REGION_DOORS_MAX];
    struct app apps[REGION_APPS_MAX];
    struct stranger stranger;
    bool has_faults;
    uint64_t n_faults;
    const char *phase;
};

/* `options` NULL: drawn. */
void region_init(struct region *region, uint64_t seed, const struct region_options *options,
                 bool is_telling);
void region_draw(struct region_options *options, struct timeline *time);
void region_start(struct region *region);
void region_deinit(struct region *region);

/* The seed's whole story: faults; a core that must serve while the rest stays broken; all healed;
 * the power gone everywhere; the end, after which nothing is left. */
void region_play(struct region *region);

/* faults.c */
void region_faults_begin(struct region *region);
/* No new ones; what is under way goes on. */
void region_faults_end(struct region *region);
/* Everything works again, at once. */
void region_heal(struct region *region);

/* phases.c: each ends with its checks. */
void region_check_core(struct region *region);
void region_check_power_cut(struct region *region);
void region_check_end(struct region *region);

/* The judge asks for promptness only of what begins after so long from now. */
void region_disturb(struct region *region, uint64_t for_us);
struct replica *region_leader(struct region *region); /* one that thinks so, or NULL */
uint64_t region_granted(const struct region *region);
uint64_t region_asked(const struct region *region);

#endif
