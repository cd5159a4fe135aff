/* Leader election on a lock: one of many processes leads, the others stand by, and everybody can
 * see who it is.
 *
 *     struct fl_election_options options = {.on_elected = begin_to_lead, .on_deposed =
 * stop_leading}; fl_election_new(client, "scheduler/leader", &options, &election, NULL);
 *
 * The term of office is a lock like any other: being the leader is never proof that you still are.
 * Pass the term's token to every write, and ask fl_election_leads() before work that the store
 * cannot check. */
#ifndef FENCELOCK_ELECTION_H
#define FENCELOCK_ELECTION_H

#include <fencelock/fencelock.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fl_election;

/* All callbacks run on the client's callback thread (or in fl_client_dispatch()), in order:
 * on_elected, on_deposed, on_elected, ...; none after fl_election_free(). NULL: not told. */
struct fl_election_options {
    /* Elected. `token` is higher than that of every leader before. */
    void (*on_elected)(void *ctx, struct fl_election *election, uint64_t token);
    /* No longer the leader, for a reason that was not ours; we stand again at once. Comes as a
     * lock's lost callback does: before the lease can have ended, as long as this process runs. */
    void (*on_deposed)(void *ctx, struct fl_election *election, enum fl_lost_cause cause);
    /* Standing did not work, and is tried again in a while: no endpoint answers, say. */
    void (*on_trouble)(void *ctx, struct fl_election *election, const struct fl_why *why);
    void *ctx;
    uint32_t max_hold_ms; /* as for a lock: fl_election_progress() */
    uint64_t reserved[8]; /* zero */
};

/* Stands for election until it is freed; shown to others by the client's name. The client must
 * outlive it.
 *   FL_E_INVALID  the name
 *   FL_E_NOMEM, FL_E_FORKED */
FL_API int fl_election_new(struct fl_client *client, const char *name,
                           const struct fl_election_options *options,
                           struct fl_election **ret_election, struct fl_why *why);
/* Resigns, or leaves the queue, and waits until no callback of it runs: not to be called from one.
 * NULL is fine. */
FL_API void fl_election_free(struct fl_election *election);

/* True only if we lead, and the lease lasts `need_ms` more on our own clock. No input or output. */
FL_API bool fl_election_leads(struct fl_election *election, uint32_t need_ms);
/* The token of our present term of office; 0: we do not lead. */
FL_API uint64_t fl_election_token(struct fl_election *election);
FL_API void fl_election_progress(struct fl_election *election); /* see max_hold_ms */
/* Hands over to who stands next, and stands again behind all others. Returns as fl_release() does;
 * 0 when we do not lead. on_deposed is not told: it was our own wish. */
FL_API int fl_election_resign(struct fl_election *election, struct fl_why *why);

/* Tells `on_leader` who leads, now and at each change, on the calling thread, until it returns
 * false (0), or nothing can be heard for longer than timeout_ms (FL_E_UNREACHABLE, FL_E_NO_LEADER).
 * `leader` is the client's name, NULL when there is none; what is told was true, and may have
 * changed. Needs no election of one's own. */
FL_API int fl_election_observe(struct fl_client *client, const char *name,
                               bool (*on_leader)(void *ctx, const char *leader, uint64_t token),
                               void *ctx, struct fl_why *why);

#ifdef __cplusplus
}
#endif

#endif
