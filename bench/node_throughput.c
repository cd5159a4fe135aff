/* Requests a second through one node, on one thread, with a log that commits at once: what the
 * judgement and the state machine cost, without network and disk.
 *
 *     build/bench/node_throughput [SECONDS] [REQUESTS_PER_TURN]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"
#include "node/node.h"

#define SESSIONS 1000
#define NAMES    100000

struct bench {
    struct fl_node *node;
    struct fl_buf entry; /* submitted, not applied */
    uint64_t index, round, frames, bytes;
};

static uint64_t on_propose(void *ctx, const void *data, size_t len)
{
    struct bench *bench = ctx;

    fl_buf_clear(&bench->entry);
    fl_buf_put(&bench->entry, data, len);
    return ++bench->index;
}

static void on_confirm(void *ctx, uint64_t round)
{
    ((struct bench *)ctx)->round = round;
}

static void on_send(void *ctx, uint64_t link, const void *data, size_t len)
{
    struct bench *bench = ctx;

    (void)link;
    (void)data;
    bench->frames++;
    bench->bytes += len;
}

static uint64_t clock_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t now_ms(void)
{
    return clock_ns() / 1000000;
}

static void commit(struct bench *bench)
{
    fl_node_flush(bench->node, now_ms());
    if (bench->entry.len > 0)
        FL_REQUIRE(fl_node_applied(bench->node, now_ms(), bench->index, 1, bench->entry.data,
                                   bench->entry.len) == FL_OK);
    fl_buf_clear(&bench->entry);
    fl_node_confirmed(bench->node, now_ms(), bench->round, bench->index);
}

static void ask(struct bench *bench, struct fl_buf *buf, const struct fl_request *request)
{
    fl_buf_clear(buf);
    fl_request_encode(buf, request);
    FL_REQUIRE(fl_node_request(bench->node, now_ms(), 1, buf->data, buf->len) == FL_OK);
}

static struct fl_session_id session_id(uint64_t i)
{
    return (struct fl_session_id){(i + 1) * 0x9e3779b97f4a7c15u, i + 1};
}

static void open_sessions(struct bench *bench, struct fl_buf *buf)
{
    for (uint64_t i = 0; i < SESSIONS; i++)
        ask(bench, buf,
            &(struct fl_request){.type = FL_REQ_OPEN_SESSION,
                                 .tag = i,
                                 .session = session_id(i),
                                 .client = FL_STR("bench"),
                                 .ttl_ms = FL_TTL_MS_MAX});
    commit(bench);
}

/* Acquire and release of the same name in turn, as tokens come out: 1, 2, 3, ... */
static uint64_t run_turn(struct bench *bench, struct fl_buf *buf, uint64_t done, uint64_t turn)
{
    char text[64];

    for (uint64_t i = 0; i < turn; i++, done++) {
        uint64_t pair = done / 2;
        int len = snprintf(text, sizeof text, "invoice/eu-west-1/settlement/2026/%020" PRIu64,
                           pair % NAMES);
        struct fl_request request = {
            .tag = done, .session = session_id(pair % SESSIONS), .name = {text, (size_t)len}};

        if (done % 2 == 0) {
            request.type = FL_REQ_ACQUIRE;
            request.request_id = pair + 1;
            request.mode = FL_MODE_EXCLUSIVE;
        } else {
            request.type = FL_REQ_RELEASE;
            request.token = pair + 1;
        }
        ask(bench, buf, &request);
    }
    commit(bench);
    return done;
}

int main(int argc, char **argv)
{
    static const struct fl_node_ops ops = {
        .propose = on_propose, .confirm = on_confirm, .send = on_send};
    uint64_t seconds = argc > 1 ? strtoull(argv[1], NULL, 10) : 3;
    uint64_t turn = argc > 2 ? strtoull(argv[2], NULL, 10) : 200;
    struct fl_node_config config = {.node_id = 1, .hash_key = {1, 2}};
    struct bench bench = {.entry = FL_BUF_INIT};
    struct fl_buf buf = FL_BUF_INIT;
    struct fl_machine_stats stats;
    uint64_t begin, done = 0;

    bench.node = fl_node_new(&config, &ops, &bench);
    fl_node_link_up(bench.node, now_ms(), 1);
    fl_node_role(bench.node, now_ms(), 1, true, 1);
    fl_node_applied(bench.node, now_ms(), ++bench.index, 1, NULL, 0);
    open_sessions(&bench, &buf);
    begin = clock_ns();
    while (clock_ns() - begin < seconds * 1000000000u)
        done = run_turn(&bench, &buf, done, turn);
    fl_machine_stats(fl_node_machine(bench.node), &stats);
    printf("%.0f requests a second (%" PRIu64 " per entry), %" PRIu64 " grants, %.0f bytes out "
           "per request\n",
           (double)done * 1e9 / (double)(clock_ns() - begin), turn, stats.grants,
           (double)bench.bytes / (double)bench.frames);
    fl_node_free(bench.node);
    fl_buf_deinit(&buf);
    fl_buf_deinit(&bench.entry);
    return stats.grants * 2 + 1 >= done ? 0 : 1;
}
