/* What goes on, again and again on one screen: nodes, rates, the busiest and the most contended
 * names.
 *
 * Rates come from the nodes' counters. Names are counted by a thread that watches every grant: in
 * bounded memory, however many there are (base/top.h). */
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/top.h"
#include "cli/cli.h"

#define NAMES_SHOWN   10
#define NAMES_COUNTED 1000
#define NAME_BYTES    128
/* What was a minute ago counts half, whatever the interval. */
#define FADE_PER_MINUTE 0.5
/* Contended names are looked for among so many. */
#define PAGES_MAX 20

struct screen {
    struct cli_common common;
    struct fl_client *client;
    uint32_t interval_ms;
    uint64_t iterations; /* 0: until stopped */
    struct fl_cluster_status *before;
    uint64_t before_ms;

    pthread_mutex_t mutex;
    struct fl_top *busiest;
    bool is_watch_over;
    struct fl_why watch_why;
};

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- The watching thread ---- */

static bool count_grant(void *ctx, const struct fl_watch_event *event)
{
    struct screen *screen = ctx;

    if (event->kind != FL_WATCH_GRANTED)
        return true;
    pthread_mutex_lock(&screen->mutex);
    fl_top_add(screen->busiest, fl_str_from(event->name), 1);
    pthread_mutex_unlock(&screen->mutex);
    return true;
}

/* A reader that is too slow for all that happens begins anew: counts are of what was seen. */
static void *watch_all(void *arg)
{
    struct screen *screen = arg;
    struct fl_why why;

    while (fl_watch(screen->client, "", true, count_grant, screen, &why) == FL_E_LIMITED) {
    }
    pthread_mutex_lock(&screen->mutex);
    screen->is_watch_over = true;
    screen->watch_why = why;
    pthread_mutex_unlock(&screen->mutex);
    return NULL;
}

/* ---- Contended names ---- */

static int by_waiters(const void *a, const void *b)
{
    uint32_t x = ((const struct fl_list_item *)a)->waiters;
    uint32_t y = ((const struct fl_list_item *)b)->waiters;

    return x < y ? 1 : x > y ? -1 : 0;
}

/* The `NAMES_SHOWN` names with the most waiters of what was looked at: owned copies of the names.
 */
struct contended {
    struct fl_list_item items[NAMES_SHOWN * 2];
    size_t n;
    bool is_all;
};

static void keep_contended(struct contended *c, const struct fl_list_item *item)
{
    if (item->waiters == 0)
        return;
    c->items[c->n] = *item;
    c->items[c->n].name = fl_xstrdup(item->name);
    c->items[c->n].client = fl_xstrdup(item->client);
    if (++c->n < FL_ARRAY_LEN(c->items))
        return;
    qsort(c->items, c->n, sizeof c->items[0], by_waiters);
    while (c->n > NAMES_SHOWN) {
        c->n--;
        free((char *)c->items[c->n].name);
        free((char *)c->items[c->n].client);
    }
}

static int find_contended(struct screen *screen, struct contended *c, struct fl_why *why)
{
    char page[2200] = "";

    *c = (struct contended){.is_all = true};
    for (int i = 0; i < PAGES_MAX; i++) {
        struct fl_listing *listing;
        int r = fl_list_names(screen->client, "", page, 1000, &listing, why);

        if (r < 0)
            return r;
        for (size_t k = 0; k < listing->n_items; k++)
            keep_contended(c, &listing->items[k]);
        snprintf(page, sizeof page, "%s", listing->next_page);
        fl_listing_free(listing);
        if (page[0] == '\0')
            break;
        c->is_all = i + 1 < PAGES_MAX;
    }
    qsort(c->items, c->n, sizeof c->items[0], by_waiters);
    return 0;
}

static void free_contended(struct contended *c)
{
    for (size_t i = 0; i < c->n; i++) {
        free((char *)c->items[i].name);
        free((char *)c->items[i].client);
    }
}

/* ---- Showing ---- */

static const struct fl_node_status *find_node(const struct fl_cluster_status *status, uint64_t id)
{
    for (size_t i = 0; status != NULL && i < status->n_nodes; i++)
        if (status->nodes[i].node_id == id && status->nodes[i].error[0] == '\0')
            return &status->nodes[i];
    return NULL;
}

static const struct fl_node_status *find_leader(const struct fl_cluster_status *status)
{
    for (size_t i = 0; i < status->n_nodes; i++)
        if (strcmp(status->nodes[i].role, "leader") == 0 && status->nodes[i].error[0] == '\0')
            return &status->nodes[i];
    return NULL;
}

/* Grants a second since the last look; negative: unknown. */
static double grants_per_s(const struct screen *screen, const struct fl_node_status *leader,
                           uint64_t at_ms)
{
    const struct fl_node_status *then =
        leader != NULL ? find_node(screen->before, leader->node_id) : NULL;

    if (then == NULL || at_ms <= screen->before_ms || leader->grants < then->grants)
        return -1;
    return (double)(leader->grants - then->grants) * 1000 / (double)(at_ms - screen->before_ms);
}

static void show_head(const struct fl_node_status *leader, double rate)
{
    char grants[32] = "-";

    if (rate >= 0)
        snprintf(grants, sizeof grants, "%.0f", rate);
    if (leader == NULL)
        printf("fencelock top: no leader\n\n");
    else
        printf("fencelock top: node %" PRIu64 " leads, term %" PRIu64 "; %s grants/s, %" PRIu64
               " sessions, %" PRIu64 " held, %" PRIu64 " waiting\n\n",
               leader->node_id, leader->term, grants, leader->sessions, leader->holds,
               leader->waits);
}

static void show_nodes(const struct fl_cluster_status *status)
{
    static const char *const heads[] = {"NODE", "ROLE", "TERM", "APPLIED", "BEHIND", "MEMORY"};
    struct cli_table table;
    uint64_t furthest = 0;

    for (size_t i = 0; i < status->n_nodes; i++)
        if (status->nodes[i].applied_index > furthest)
            furthest = status->nodes[i].applied_index;
    cli_table_init(&table, heads, (int)FL_ARRAY_LEN(heads));
    for (size_t i = 0; i < status->n_nodes; i++) {
        const struct fl_node_status *node = &status->nodes[i];

        cli_table_add(&table, "%" PRIu64, node->node_id);
        if (node->error[0] != '\0') {
            cli_table_add(&table, "%s", node->error);
            for (int c = 2; c < table.n_columns; c++)
                cli_table_add(&table, "-");
            continue;
        }
        cli_table_add(&table, "%s", node->role);
        cli_table_add(&table, "%" PRIu64, node->term);
        cli_table_add(&table, "%" PRIu64, node->applied_index);
        cli_table_add(&table, "%" PRIu64, furthest - node->applied_index);
        cli_table_add(&table, "%.1f MiB", (double)node->memory_bytes / (1 << 20));
    }
    cli_table_print(&table);
    cli_table_deinit(&table);
}

static void show_busiest(const struct fl_top_entry *entries, size_t n)
{
    static const char *const heads[] = {"BUSIEST NAMES", "GRANTS"};
    struct cli_table table;

    if (n == 0)
        return;
    cli_table_init(&table, heads, (int)FL_ARRAY_LEN(heads));
    for (size_t i = 0; i < n; i++) {
        cli_table_add(&table, "%.*s", (int)entries[i].name.len, entries[i].name.data);
        cli_table_add(&table, "%" PRIu64, entries[i].count);
    }
    putchar('\n');
    cli_table_print(&table);
    cli_table_deinit(&table);
}

static void show_contended(const struct contended *c)
{
    static const char *const heads[] = {"CONTENDED NAMES", "WAITING", "HELD BY", "FOR", "TOKEN"};
    struct cli_table table;
    char held_for[32];

    if (c->n == 0)
        return;
    cli_table_init(&table, heads, (int)FL_ARRAY_LEN(heads));
    for (size_t i = 0; i < c->n && i < NAMES_SHOWN; i++) {
        const struct fl_list_item *item = &c->items[i];

        cli_table_add(&table, "%s", item->name);
        cli_table_add(&table, "%" PRIu32, item->waiters);
        cli_table_add(&table, "%s", item->client);
        cli_table_add(&table, "%s", cli_format_duration(item->held_for_ms, held_for));
        cli_table_add(&table, "%" PRIu64, item->token);
    }
    putchar('\n');
    cli_table_print(&table);
    cli_table_deinit(&table);
    if (!c->is_all)
        printf("(among the first %d names in use)\n", PAGES_MAX * 1000);
}

static json_t *names_json(const struct fl_top_entry *entries, size_t n)
{
    json_t *names = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(names, json_pack("{s:s%, s:I}", "name", entries[i].name.data,
                                               (size_t)entries[i].name.len, "grants",
                                               (json_int_t)entries[i].count));
    return names;
}

static json_t *contended_json(const struct contended *c)
{
    json_t *names = json_array();

    for (size_t i = 0; i < c->n && i < NAMES_SHOWN; i++)
        json_array_append_new(
            names,
            json_pack("{s:s, s:I, s:s, s:I, s:I}", "name", c->items[i].name, "waiters",
                      (json_int_t)c->items[i].waiters, "client", c->items[i].client, "held_for_ms",
                      (json_int_t)c->items[i].held_for_ms, "token", (json_int_t)c->items[i].token));
    return names;
}

static void show(struct screen *screen, const struct fl_cluster_status *status,
                 const struct contended *contended, uint64_t at_ms)
{
    const struct fl_node_status *leader = find_leader(status);
    double rate = grants_per_s(screen, leader, at_ms);
    struct fl_top_entry entries[NAMES_SHOWN];
    size_t n;

    pthread_mutex_lock(&screen->mutex);
    n = fl_top_list(screen->busiest, entries, NAMES_SHOWN);
    if (screen->common.json) {
        cli_print_json(json_pack("{s:I, s:f, s:I, s:I, s:I, s:o, s:o}", "leader_id",
                                 (json_int_t)(leader != NULL ? leader->node_id : 0), "grants_per_s",
                                 rate < 0 ? 0 : rate, "sessions",
                                 (json_int_t)(leader != NULL ? leader->sessions : 0), "holds",
                                 (json_int_t)(leader != NULL ? leader->holds : 0), "waits",
                                 (json_int_t)(leader != NULL ? leader->waits : 0), "busiest",
                                 names_json(entries, n), "contended", contended_json(contended)));
    } else {
        if (isatty(STDOUT_FILENO))
            fputs("\033[H\033[J", stdout); /* home, clear (ECMA-48) */
        show_head(leader, rate);
        show_nodes(status);
        show_busiest(entries, n);
        show_contended(contended);
        if (screen->is_watch_over)
            printf("\n(grants are not counted any more: %s)\n", screen->watch_why.message);
    }
    fl_top_fade(screen->busiest, 1 - (1 - FADE_PER_MINUTE) * (double)screen->interval_ms / 60000);
    pthread_mutex_unlock(&screen->mutex);
    fflush(stdout);
}

/* One look. False: it failed, and common.exit_code is set. */
static bool look(struct screen *screen)
{
    struct fl_cluster_status *status;
    struct contended contended = {.n = 0};
    uint64_t at_ms = now_ms();
    struct fl_why why;

    if (fl_cluster_status(screen->client, true, &status, &why) < 0) {
        screen->common.exit_code = cli_fail(&screen->common, &why);
        return false;
    }
    /* Without a leader names cannot be listed: the nodes are worth seeing all the more. */
    (void)find_contended(screen, &contended, &why);
    show(screen, status, &contended, at_ms);
    free_contended(&contended);
    fl_cluster_status_free(screen->before);
    screen->before = status;
    screen->before_ms = at_ms;
    return !ferror(stdout);
}

static int top(int argc, char **argv)
{
    static const struct option options[] = {{"interval", required_argument, NULL, 'i'},
                                            {"iterations", required_argument, NULL, 'n'},
                                            CLI_COMMON_OPTIONS};
    struct screen screen = {.interval_ms = 2000};
    struct fl_hash_key key = {0, 0};
    pthread_t thread;
    int option;

    cli_common_init(&screen.common, &cli_top);
    while ((option = cli_next_option(&screen.common, argc, argv, options)) != -1) {
        if (option == 'i')
            screen.interval_ms = cli_duration(&screen.common, "--interval", optarg);
        else
            screen.iterations = cli_number(&screen.common, "--iterations", optarg, 1, UINT32_MAX);
    }
    if (!cli_want_operands(&screen.common, argc, 0, "no operand"))
        return screen.common.exit_code;
    screen.client = cli_connect(&screen.common, NULL);
    if (screen.client == NULL)
        return screen.common.exit_code;
    (void)getrandom(&key, sizeof key, 0); /* without it names could be made to collide, no more */
    screen.busiest = fl_top_new(NAMES_COUNTED, NAME_BYTES, key);
    pthread_mutex_init(&screen.mutex, NULL);
    screen.common.exit_code = 0;
    if (pthread_create(&thread, NULL, watch_all, &screen) != 0)
        return cli_fail(&screen.common, &(struct fl_why){.code = FL_E_NOMEM});
    for (uint64_t i = 0; look(&screen) && i + 1 != screen.iterations; i++)
        (void)poll(NULL, 0, (int)screen.interval_ms);
    exit(screen.common.exit_code); /* not back: the watch stands on this frame, and ends with us */
}

const struct cli_command cli_top = {
    .name = "top",
    .summary = "nodes, rates, busiest and most contended names, live",
    .help = "fencelock top [OPTIONS]\n"
            "\n"
            "Shows the nodes, grants a second, the names that were granted most often since it\n"
            "runs, and those with the longest queues, every two seconds until it is stopped.\n"
            "\n"
            "  --interval TIME            between two looks (2s)\n"
            "  --iterations N             stop after N looks\n" CLI_COMMON_HELP "\n"
            "Examples:\n"
            "  fencelock top\n"
            "  fencelock top --json --iterations 5 | jq .contended[0].name\n",
    .run = top,
};
