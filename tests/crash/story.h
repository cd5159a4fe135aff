/* A store on a disk in memory, a script that drives it, and what must be found after a crash:
 * what was acknowledged, or that and the first steps of what was under way, in order. */
#ifndef FL_TESTS_CRASH_STORY_H
#define FL_TESTS_CRASH_STORY_H

#include "mem_disk.h"
#include "raft/store.h"

#define STORY_INDEX_MAX   4096
#define STORY_STATES_MAX  64
#define STORY_PAYLOAD_MAX 1024

struct story_entry {
    uint64_t term, id; /* the id makes the payload */
    uint32_t len;
};

struct story_state {
    uint64_t term, voted_for;
    uint64_t snapshot, snapshot_before; /* indexes; 0: none */
    uint64_t floor;                     /* where the log began after the last reset */
    uint64_t last;                      /* of the log */
    bool adds;                          /* the step to this state wrote entry `last`: */
    struct story_entry added;
};

struct story {
    struct mem_disk *disk; /* owned */
    struct fl_store *store;
    struct fl_store_config config;
    struct fl_random random;
    uint64_t next_id;
    struct story_entry entries[STORY_INDEX_MAX]; /* as acknowledged, by index */
    /* states[0] is what was acknowledged; each further one is a step more. */
    struct story_state states[STORY_STATES_MAX];
    unsigned n_states;
    unsigned only_state; /* this one less one may be found; 0: any of them */
    bool life_after;     /* checks also go on from what they found */
    bool tolerates;      /* a disk call may fail: what is refused then is no problem */
    uint64_t checks;     /* stores opened to be compared */
    char problem[1024];  /* of the first check that failed; empty: none */
};

/* An empty disk, and no store yet: story_open() makes it. */
struct story *story_new(uint64_t seed);
void story_free(struct story *story);
/* Opens the store on the disk as it is and compares what it finds. Returns what opening returned.
 */
int story_open(struct story *story);
/* Ends the process that has it open, without a word to the store. */
void story_kill(struct story *story);
/* Closes it in good order. */
void story_close(struct story *story);
/* One append, of entries of these lengths, and waits for it. */
void story_append(struct story *story, uint64_t index, unsigned n, const uint32_t *lens);
/* Appends one entry and kills the process: the entry may be lost to damage unseen, since nothing
 * tells yet that it was durable. */
void story_append_and_kill(struct story *story, uint32_t len);
/* The next operation of the script, drawn from the seed. */
void story_step(struct story *story);

/* Opens another store, on what a crash left, and compares. `disk` is freed. */
void story_check(struct story *story, struct mem_disk *disk);

/* The process ends, is started again, and then the power goes: what the second start found, which a
 * node has acted on, must be there. */
void story_check_kill(struct story *story);

/* Compares what was found with the states; sets the problem when none fits. Returns the state that
 * fits, or -1. */
int story_match(struct story *story, const struct fl_store_recovered *found);
bool story_is_broken(const struct story *story);

#endif
