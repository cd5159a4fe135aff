/* GET /v1/Monitor: what /metrics tells, as JSON, for the dashboard. Counts are since the start:
 * whoever wants rates takes the difference of two. */
#include <time.h>

#include "base/alloc.h"
#include "http/json.h"
#include "http/site_parts.h"

static json_t *list_of(const uint64_t *values, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, fl_json_number(values[i]));
    return list;
}

static json_t *timing_of(const struct fl_timing *timing)
{
    return json_pack("{s:o, s:o}", "counts", list_of(timing->counts, FL_TIMING_BOUNDS + 1),
                     "sum_us", fl_json_number(timing->sum_us));
}

static json_t *operations_of(const struct fl_gateway_meter *meter)
{
    json_t *list = json_array();

    for (unsigned op = 0; op < FL_METER_OPERATIONS; op++) {
        for (unsigned how = 0; how < FL_METER_OUTCOMES; how++) {
            if (meter->counts[op][how] != 0)
                json_array_append_new(list, json_pack("{s:s, s:s, s:o}", "operation",
                                                      fl_meter_operation_text(op), "outcome",
                                                      fl_meter_outcome_text(how), "count",
                                                      fl_json_number(meter->counts[op][how])));
        }
    }
    return list;
}

/* All outcomes of an operation together. */
static json_t *times_of(const struct fl_gateway_meter *meter)
{
    json_t *object = json_object();

    for (unsigned op = 0; op < FL_METER_OPERATIONS; op++) {
        struct fl_timing sum = {0};

        for (size_t group = 0; group < FL_ARRAY_LEN(meter->times[op]); group++) {
            for (unsigned i = 0; i <= FL_TIMING_BOUNDS; i++)
                sum.counts[i] += meter->times[op][group].counts[i];
            sum.sum_us += meter->times[op][group].sum_us;
        }
        if (fl_timing_count(&sum) != 0)
            json_object_set_new(object, fl_meter_operation_text(op), timing_of(&sum));
    }
    return object;
}

static json_t *gateway_of(const struct fl_site *site)
{
    struct fl_gateway_stats stats;

    fl_gateway_stats(site->gateway, &stats);
    return json_pack("{s:b, s:o, s:I, s:I, s:I, s:o, s:o}", "has_leader", stats.has_leader,
                     "leader_id", fl_json_number(stats.leader_id), "streams",
                     (json_int_t)stats.streams, "watches", (json_int_t)stats.watches, "unanswered",
                     (json_int_t)stats.unanswered, "operations",
                     operations_of(fl_gateway_meter(site->gateway)), "times",
                     times_of(fl_gateway_meter(site->gateway)));
}

static json_t *names_of(const struct fl_figures_name *names, unsigned n)
{
    json_t *list = json_array();

    for (unsigned i = 0; i < n; i++)
        json_array_append_new(list,
                              json_pack("{s:o, s:f, s:i}", "name", fl_json_text(names[i].name),
                                        "per_s", names[i].per_s, "waiters", (int)names[i].waiters));
    return list;
}

static json_t *prefixes_of(const struct fl_figures *f)
{
    json_t *list = json_array();

    for (unsigned i = 0; i < f->n_prefixes; i++)
        json_array_append_new(list, json_pack("{s:o, s:o, s:o}", "prefix",
                                              fl_json_text(f->prefixes[i].prefix), "wait",
                                              timing_of(&f->prefixes[i].wait), "hold",
                                              timing_of(&f->prefixes[i].hold)));
    return list;
}

static json_t *node_of(const struct fl_figures *f)
{
    const struct fl_status_info *s = &f->status;

    return json_pack(
        "{s:o, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "node_id",
        fl_json_number(s->node_id), "is_leader", s->role == 2, "is_disk_full", f->is_disk_full,
        "sessions", fl_json_number(s->stats.sessions), "names", fl_json_number(s->stats.names),
        "holds", fl_json_number(s->stats.holds), "waits", fl_json_number(s->stats.waits), "grants",
        fl_json_number(s->stats.grants), "commit", timing_of(&f->commit), "write",
        timing_of(&f->write), "prefixes", prefixes_of(f), "busiest",
        names_of(f->busiest, f->n_busiest), "contended", names_of(f->contended, f->n_contended));
}

void fl_site__serve_monitor(struct fl_site *site, struct fl_http_exchange *x)
{
    const struct fl_figures *figures = fl_site__figures(site);
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    fl_site__reply_json(
        x, json_pack("{s:s, s:I, s:o, s:o, s:o}", "version", site->version, "now_ms",
                     (json_int_t)now.tv_sec * 1000 + now.tv_nsec / 1000000, "bounds_us",
                     list_of(fl_timing_bounds_us, FL_TIMING_BOUNDS), "gateway", gateway_of(site),
                     "node", figures != NULL ? node_of(figures) : json_null()));
}
