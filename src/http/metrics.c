/* /metrics: Prometheus' text format, version 0.0.4. Every series is of a bounded kind: no label
 * takes a client's word but the names of the two top lists, which are twenty each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "http/site_parts.h"

/* --- The format --- */

static void family(struct fl_buf *out, const char *name, const char *type, const char *help)
{
    fl_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_label(struct fl_buf *out, const char *name, const char *value)
{
    fl_buf_printf(out, "%s=\"", name);
    for (; *value != '\0'; value++) {
        if (*value == '\\' || *value == '"')
            fl_buf_put_u8(out, '\\');
        fl_buf_put_u8(out, (uint8_t)*value); /* names have no line feed */
    }
    fl_buf_put_u8(out, '"');
}

/* Up to two labels; NULL ends them. */
struct labels {
    const char *name1, *value1, *name2, *value2;
};

static void put_labels(struct fl_buf *out, const struct labels *labels, const char *le)
{
    if (labels->name1 == NULL && le == NULL)
        return;
    fl_buf_put_u8(out, '{');
    if (labels->name1 != NULL)
        put_label(out, labels->name1, labels->value1);
    if (labels->name2 != NULL) {
        fl_buf_put_u8(out, ',');
        put_label(out, labels->name2, labels->value2);
    }
    if (le != NULL) {
        if (labels->name1 != NULL)
            fl_buf_put_u8(out, ',');
        put_label(out, "le", le);
    }
    fl_buf_put_u8(out, '}');
}

static void sample(struct fl_buf *out, const char *name, const struct labels *labels, double value)
{
    fl_buf_printf(out, "%s", name);
    put_labels(out, labels, NULL);
    fl_buf_printf(out, " %.15g\n", value);
}

static void plain(struct fl_buf *out, const char *name, const char *type, const char *help,
                  double value)
{
    family(out, name, type, help);
    sample(out, name, &(struct labels){0}, value);
}

static void histogram(struct fl_buf *out, const char *name, const struct labels *labels,
                      const struct fl_timing *timing)
{
    uint64_t n = 0;

    for (unsigned i = 0; i <= FL_TIMING_BOUNDS; i++) {
        char le[32] = "+Inf";

        n += timing->counts[i];
        if (i < FL_TIMING_BOUNDS)
            snprintf(le, sizeof le, "%.15g", (double)fl_timing_bounds_us[i] / 1e6);
        fl_buf_printf(out, "%s_bucket", name);
        put_labels(out, labels, le);
        fl_buf_printf(out, " %llu\n", (unsigned long long)n);
    }
    fl_buf_printf(out, "%s_sum", name);
    put_labels(out, labels, NULL);
    fl_buf_printf(out, " %.15g\n%s_count", (double)timing->sum_us / 1e6, name);
    put_labels(out, labels, NULL);
    fl_buf_printf(out, " %llu\n", (unsigned long long)n);
}

/* --- This process --- */

static double clock_ticks_per_s(void)
{
    long ticks = sysconf(_SC_CLK_TCK);

    return ticks > 0 ? (double)ticks : 100;
}

static double boot_time_s(void)
{
    double seconds = 0;
    char line[128];
    FILE *from = fopen("/proc/stat", "re");

    while (from != NULL && fgets(line, sizeof line, from) != NULL)
        if (sscanf(line, "btime %lf", &seconds) == 1)
            break;
    if (from != NULL)
        fclose(from);
    return seconds;
}

static void put_process(struct fl_buf *out)
{
    unsigned long user = 0, system = 0;
    unsigned long long started = 0;
    long pages = 0;
    FILE *from = fopen("/proc/self/stat", "re");

    if (from == NULL)
        return;
    /* The name of the program may have blanks: it ends with the last parenthesis. */
    if (fscanf(from,
               "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d "
               "%*d %*d %llu %*u %ld",
               &user, &system, &started, &pages) == 4) {
        plain(out, "process_cpu_seconds_total", "counter", "CPU time spent, user and system.",
              (double)(user + system) / clock_ticks_per_s());
        plain(out, "process_start_time_seconds", "gauge", "When it started, since the epoch.",
              boot_time_s() + (double)started / clock_ticks_per_s());
        plain(out, "process_resident_memory_bytes", "gauge", "Resident memory.",
              (double)pages * (double)sysconf(_SC_PAGESIZE));
    }
    fclose(from);
}

/* --- The gateway --- */

static void put_operations(struct fl_buf *out, const struct fl_gateway_meter *meter)
{
    static const char name[] = "fencelock_gateway_operations_total";

    family(out, name, "counter", "Calls that this gateway answered, by how.");
    for (unsigned op = 0; op < FL_METER_OPERATIONS; op++) {
        for (unsigned how = 0; how < FL_METER_OUTCOMES; how++) {
            struct labels labels = {"operation", fl_meter_operation_text(op), "outcome",
                                    fl_meter_outcome_text(how)};

            if (meter->counts[op][how] != 0)
                sample(out, name, &labels, (double)meter->counts[op][how]);
        }
    }
}

static void put_operation_times(struct fl_buf *out, const struct fl_gateway_meter *meter)
{
    static const char name[] = "fencelock_gateway_operation_seconds";
    static const char *const groups[] = {"ok", "granted", "not_granted", "error"};

    family(out, name, "histogram", "How long they took; of acquires the wait is in it.");
    for (unsigned op = 0; op < FL_METER_OPERATIONS; op++) {
        for (unsigned group = 0; group < FL_ARRAY_LEN(groups); group++) {
            struct labels labels = {"operation", fl_meter_operation_text(op), "outcome",
                                    groups[group]};

            if (fl_timing_count(&meter->times[op][group]) != 0)
                histogram(out, name, &labels, &meter->times[op][group]);
        }
    }
}

static void put_gateway(struct fl_buf *out, const struct fl_site *site)
{
    struct fl_gateway_stats stats;
    struct fl_http_server_stats http;

    fl_gateway_stats(site->gateway, &stats);
    fl_http_server_stats(site->server, &http);
    plain(out, "fencelock_gateway_has_leader", "gauge", "1 while a leader can be reached.",
          stats.has_leader);
    plain(out, "fencelock_gateway_streams", "gauge", "Open session streams.",
          (double)stats.streams);
    plain(out, "fencelock_gateway_watches", "gauge", "Open watches.", (double)stats.watches);
    plain(out, "fencelock_gateway_unanswered", "gauge",
          "Requests in hand: those that wait for a name, too.", (double)stats.unanswered);
    plain(out, "fencelock_http_connections", "gauge", "Connections to this port.",
          (double)http.connections);
    plain(out, "fencelock_http_requests_total", "counter", "Requests to this port.",
          (double)http.requests);
    plain(out, "fencelock_http_bad_requests_total", "counter",
          "What came to this port and was no request, or too much.", (double)http.bad);
    put_operations(out, fl_gateway_meter(site->gateway));
    put_operation_times(out, fl_gateway_meter(site->gateway));
}

/* --- The node --- */

static void put_consensus(struct fl_buf *out, const struct fl_figures *f)
{
    const struct fl_status_info *s = &f->status;
    bool is_leader = s->role == 2;

    plain(out, "fencelock_node_is_leader", "gauge", "1 on the node that leads.", is_leader);
    plain(out, "fencelock_node_term", "gauge", "The term it is in: rises with each election.",
          (double)s->term);
    plain(out, "fencelock_node_leaderships_total", "counter", "How often it began to lead.",
          (double)f->leaderships);
    plain(out, "fencelock_node_commit_index", "gauge", "Entries known to be committed.",
          (double)s->commit_index);
    plain(out, "fencelock_node_applied_index", "gauge", "Entries applied.",
          (double)s->applied_index);
    plain(out, "fencelock_node_last_index", "gauge", "Entries in its log, ever.",
          (double)s->last_index);
    plain(out, "fencelock_node_snapshot_index", "gauge", "What its newest snapshot contains.",
          (double)s->snapshot_index);
    plain(out, "fencelock_node_disk_full", "gauge", "1 while grants are refused for want of space.",
          f->is_disk_full);
    plain(out, "fencelock_node_written_bytes_total", "counter", "Written to the log.",
          (double)f->written_bytes);
    family(out, "fencelock_node_write_seconds", "histogram",
           "Writing a group of entries until it is durable.");
    histogram(out, "fencelock_node_write_seconds", &(struct labels){0}, &f->write);
    family(out, "fencelock_node_commit_seconds", "histogram",
           "From the proposal of an entry until it is applied; of the leader.");
    histogram(out, "fencelock_node_commit_seconds", &(struct labels){0}, &f->commit);
}

static void put_peers(struct fl_buf *out, const struct fl_status_info *s)
{
    char id[24];
    struct labels labels = {"peer", id, NULL, NULL};

    family(out, "fencelock_node_peer_reachable", "gauge", "1 while it is connected to that node.");
    for (unsigned i = 0; i < s->n_members; i++) {
        snprintf(id, sizeof id, "%llu", (unsigned long long)s->members[i].id);
        if (s->members[i].id != s->node_id)
            sample(out, "fencelock_node_peer_reachable", &labels, s->members[i].reachable);
    }
    family(out, "fencelock_node_peer_lag", "gauge",
           "Entries that the peer has not confirmed; of the leader.");
    for (unsigned i = 0; i < s->n_members && s->role == 2; i++) {
        uint64_t match = s->members[i].match_index;

        snprintf(id, sizeof id, "%llu", (unsigned long long)s->members[i].id);
        if (s->members[i].id != s->node_id)
            sample(out, "fencelock_node_peer_lag", &labels,
                   s->last_index > match ? (double)(s->last_index - match) : 0);
    }
}

static void put_state(struct fl_buf *out, const struct fl_status_info *s)
{
    plain(out, "fencelock_sessions", "gauge", "Sessions that live, as this node knows it.",
          (double)s->stats.sessions);
    plain(out, "fencelock_names", "gauge", "Names that are held, waited for, or closed.",
          (double)s->stats.names);
    plain(out, "fencelock_holds", "gauge", "Grants that are held.", (double)s->stats.holds);
    plain(out, "fencelock_waits", "gauge", "Requests in queues.", (double)s->stats.waits);
    plain(out, "fencelock_state_bytes", "gauge", "Memory of sessions, names and queues.",
          (double)s->stats.memory);
    plain(out, "fencelock_token", "gauge", "The last token that was handed out.", (double)s->token);
}

static void put_causes(struct fl_buf *out, const char *name, const char *help,
                       const uint64_t counts[FL_METER_CAUSES])
{
    static const char *const causes[FL_METER_CAUSES] = {
        [FL_CAUSE_RELEASED] = "released",   [FL_CAUSE_ABANDONED] = "abandoned",
        [FL_CAUSE_CANCELLED] = "cancelled", [FL_CAUSE_TIMED_OUT] = "timed_out",
        [FL_CAUSE_CLOSED] = "closed",       [FL_CAUSE_EXPIRED] = "expired",
        [FL_CAUSE_ENDED] = "ended",         [FL_CAUSE_FORCED] = "forced",
    };

    family(out, name, "counter", help);
    for (unsigned i = 0; i < FL_METER_CAUSES; i++)
        if (counts[i] != 0 && causes[i] != NULL)
            sample(out, name, &(struct labels){"cause", causes[i], NULL, NULL}, (double)counts[i]);
}

/* Only the leader counts these: the sum over all nodes is the cluster's. */
static void put_counts(struct fl_buf *out, const struct fl_figures *f)
{
    plain(out, "fencelock_grants_total", "counter", "Grants, counted by the leader of the time.",
          (double)f->grants);
    plain(out, "fencelock_queued_total", "counter", "Requests that had to queue.",
          (double)f->queued);
    plain(out, "fencelock_sessions_opened_total", "counter", "Sessions that were opened.",
          (double)f->sessions_opened);
    put_causes(out, "fencelock_holds_ended_total", "Grants that ended, by why.", f->hold_ends);
    put_causes(out, "fencelock_waits_ended_total", "Waits that ended without a grant, by why.",
               f->wait_ends);
    put_causes(out, "fencelock_sessions_ended_total", "Sessions that ended, by why.",
               f->session_ends);
    family(out, "fencelock_wait_seconds", "histogram",
           "How long grants were waited for, by prefix of the name.");
    for (unsigned i = 0; i < f->n_prefixes; i++)
        histogram(out, "fencelock_wait_seconds",
                  &(struct labels){"prefix", f->prefixes[i].prefix, NULL, NULL},
                  &f->prefixes[i].wait);
    family(out, "fencelock_hold_seconds", "histogram",
           "How long names were held, by prefix of the name.");
    for (unsigned i = 0; i < f->n_prefixes; i++)
        histogram(out, "fencelock_hold_seconds",
                  &(struct labels){"prefix", f->prefixes[i].prefix, NULL, NULL},
                  &f->prefixes[i].hold);
}

static void put_names(struct fl_buf *out, const char *name, const char *help,
                      const struct fl_figures_name *names, unsigned n, bool of_waiters)
{
    family(out, name, "gauge", help);
    for (unsigned i = 0; i < n; i++)
        sample(out, name, &(struct labels){"name", names[i].name, NULL, NULL},
               of_waiters ? names[i].waiters : names[i].per_s);
}

/* Every node knows them, the leader tells. */
static void put_top(struct fl_buf *out, const struct fl_figures *f)
{
    bool tells = f->status.role == 2;

    put_names(out, "fencelock_top_acquires_per_second",
              "The names that are asked for most: at most twenty, about the last half minute.",
              f->busiest, tells ? f->n_busiest : 0, false);
    put_names(out, "fencelock_top_contended_per_second",
              "The names that were most often found taken: at most twenty.", f->contended,
              tells ? f->n_contended : 0, false);
    put_names(out, "fencelock_top_waiters", "How many wait for those.", f->contended,
              tells ? f->n_contended : 0, true);
}

void fl_site__serve_metrics(struct fl_site *site, struct fl_http_exchange *x)
{
    const struct fl_figures *figures = fl_site__figures(site);
    struct fl_http_answer answer = {.status = 200,
                                    .type = "text/plain; version=0.0.4; charset=utf-8",
                                    .headers = "Cache-Control: no-store\r\n"};
    struct fl_buf out = FL_BUF_INIT;

    family(&out, "fencelock_build_info", "gauge", "What runs here.");
    sample(&out, "fencelock_build_info", &(struct labels){"version", site->version, NULL, NULL}, 1);
    put_process(&out);
    put_gateway(&out, site);
    if (figures != NULL) {
        put_consensus(&out, figures);
        put_peers(&out, &figures->status);
        put_state(&out, &figures->status);
        put_counts(&out, figures);
        put_top(&out, figures);
    }
    answer.body = (struct fl_str){(const char *)out.data, out.len};
    fl_http_reply(x, &answer);
    fl_buf_deinit(&out);
}
