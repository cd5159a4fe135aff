/* An application with the SDK's session as it is shipped, on a machine of its own: a few workers
 * that take locks, write to the fenced store while they hold one, and give it back; now and then a
 * look at a name. Tells the judge what it asked, was told, and believes. */
#ifndef FL_TESTS_SIM_APP_H
#define FL_TESTS_SIM_APP_H

#include "client/session.h"
#include "client/wire.h"
#include "door.h"
#include "fence.h"
#include "linear.h"
#include "truth.h"

#define APP_WORKERS_MAX 3
#define APP_NAMES       4

struct app_config {
    uint32_t ttl_ms, wait_ms_max, hold_ms_max, think_ms_max, timeout_ms;
    unsigned workers;
    uint32_t lock_delay_ms;
    unsigned cancel_one_in, look_one_in;
    bool uses_shared, uses_counted;
    bool is_scripted; /* its workers do only what they are told */
};

struct app_counts {
    uint64_t sessions, ended /* not by us */, asked, granted, refused, lost, released, reads,
        crashes;
};

struct app {
    struct place place;
    struct net *net;
    struct truth *truth;
    struct fence *fence;
    struct linear *linear;
    struct door *doors;
    unsigned n_doors, door;
    const struct app_config *config;
    bool is_stopping; /* no new work */

    struct fl_session session;
    bool has_session;
    struct fl_wire_options wire;
    struct conn *stream, *look;
    uint64_t stream_number;
    bool is_refused;      /* the stream could not be begun */
    uint32_t number;      /* of the session; 0: none yet */
    uint64_t believed_ms; /* as the judge knows it */
    unsigned n_asked;     /* in this session */
    bool wants_close;
    uint64_t close_by_ms; /* then its TTL must end the session */
    struct alarm tick;
    uint64_t looked_us, look_committed;
    unsigned look_name;
    struct app_worker {
        struct app *app;
        struct fl_bid bid;
        enum { WORKER_IDLE, WORKER_ASKS, WORKER_HOLDS, WORKER_RELEASES } state;
        unsigned name;
        uint64_t asked_us;
        bool is_held;      /* on, as the judge knows it */
        bool will_release; /* at the next alarm; else it writes */
        struct alarm alarm;
    } workers[APP_WORKERS_MAX];
    uint64_t done_us; /* when a request of it was last judged by the server */
    struct app_counts counts;
};

void app_init(struct app *app, struct net *net, struct truth *truth, struct fence *fence,
              struct linear *linear, struct door *doors, unsigned n_doors,
              const struct app_config *config);
void app_start(struct app *app);
void app_crash(struct app *app, bool is_silent);
void app_deinit(struct app *app);
void app_pause(struct app *app, uint64_t until_us);
void app_wake(struct app *app); /* ends its pause */

/* For scripts. */
void app_ask(struct app *app, unsigned worker, unsigned name, int mode, uint32_t wait_ms);
void app_give_back(struct app *app, unsigned worker);
void app_write(struct app *app, unsigned worker);
bool app_holds(const struct app *app, unsigned worker);

#endif
