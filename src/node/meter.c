#include "node/meter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/top.h"

/* Places in each sketch: whatever is more than 0.4 % of all is in it. */
#define SKETCH_PLACES 256
/* The counts lose a fifth every five seconds: what was half a minute ago is nearly forgotten. */
#define FADE_EVERY_MS 5000
#define FADE_FACTOR   0.8
/* Counts are in thousandths, so that a single one fades slowly. */
#define UNIT 1000u
/* Beyond this many between two ticks only each sixteenth is looked at, and counts sixteen times:
 * under load a sketch of a sample says the same, and costs nothing. */
#define SAMPLE_ALL  1000u
#define SAMPLE_EACH 16u

struct fl_meter {
    struct fl_top *busiest, *contended;
    uint64_t faded_ms;
    uint32_t n_seen; /* since the last tick */
    bool is_leader;
    struct fl_figures sums; /* only what is counted */
};

struct fl_meter *fl_meter_new(const char *const *prefixes, unsigned n, struct fl_hash_key key)
{
    struct fl_meter *meter = fl_xcalloc(1, sizeof *meter);

    meter->busiest = fl_top_new(SKETCH_PLACES, FL_NAME_MAX, key);
    meter->contended = fl_top_new(SKETCH_PLACES, FL_NAME_MAX, key);
    for (unsigned i = 0; i < n && i < FL_METER_PREFIXES_MAX; i++)
        snprintf(meter->sums.prefixes[i].prefix, sizeof meter->sums.prefixes[i].prefix, "%s",
                 prefixes[i]);
    meter->sums.n_prefixes = (n < FL_METER_PREFIXES_MAX ? n : FL_METER_PREFIXES_MAX) + 1;
    return meter;
}

void fl_meter_free(struct fl_meter *meter)
{
    if (meter == NULL)
        return;
    fl_top_free(meter->busiest);
    fl_top_free(meter->contended);
    free(meter);
}

void fl_meter_role(struct fl_meter *meter, bool is_leader)
{
    meter->sums.leaderships += is_leader && !meter->is_leader;
    meter->is_leader = is_leader;
}

/* --- Names --- */

/* How often this one counts; 0: not looked at. */
static uint64_t weight_of(struct fl_meter *meter)
{
    if (++meter->n_seen <= SAMPLE_ALL)
        return UNIT;
    return meter->n_seen % SAMPLE_EACH == 0 ? UNIT * SAMPLE_EACH : 0;
}

static void count_acquire(struct fl_meter *meter, const struct fl_effect *effect)
{
    bool is_acquire = effect->answer == FL_ANS_GRANTED || effect->answer == FL_ANS_QUEUED ||
                      effect->answer == FL_ANS_HELD;
    uint64_t weight;

    if (!is_acquire || effect->name.len == 0 || (weight = weight_of(meter)) == 0)
        return;
    fl_top_add(meter->busiest, effect->name, weight);
    if (effect->answer != FL_ANS_GRANTED)
        fl_top_add(meter->contended, effect->name, weight);
    if (effect->answer == FL_ANS_QUEUED) /* its ENQUEUE came before the name was in the sketch */
        fl_top_mark(meter->contended, effect->name, effect->waiters);
}

/* --- Durations --- */

/* The longest prefix that fits; the last is everybody's. */
static struct fl_figures_prefix *prefix_of(struct fl_meter *meter, struct fl_str name)
{
    struct fl_figures_prefix *found = &meter->sums.prefixes[meter->sums.n_prefixes - 1];

    for (unsigned i = 0; i + 1 < meter->sums.n_prefixes; i++) {
        struct fl_str prefix = fl_str_from(meter->sums.prefixes[i].prefix);

        if (prefix.len > strlen(found->prefix) && fl_str_has_prefix(name, prefix))
            found = &meter->sums.prefixes[i];
    }
    return found;
}

static void count(struct fl_meter *meter, const struct fl_effect *effect)
{
    struct fl_figures *sums = &meter->sums;

    switch (effect->type) {
    case FL_EFF_GRANT:
        sums->grants++;
        fl_timing_record(&prefix_of(meter, effect->name)->wait, effect->for_ms * 1000);
        break;
    case FL_EFF_ENQUEUE:
        sums->queued++;
        break;
    case FL_EFF_HOLD_END:
        sums->hold_ends[effect->cause]++;
        fl_timing_record(&prefix_of(meter, effect->name)->hold, effect->for_ms * 1000);
        break;
    case FL_EFF_WAIT_END:
        sums->wait_ends[effect->cause]++;
        break;
    case FL_EFF_SESSION_OPEN:
        sums->sessions_opened++;
        break;
    case FL_EFF_SESSION_END:
        sums->session_ends[effect->cause]++;
        break;
    case FL_EFF_ANSWER:
        break;
    }
}

void fl_meter_effect(struct fl_meter *meter, const struct fl_effect *effect, bool is_leader)
{
    if (effect->type == FL_EFF_ANSWER)
        count_acquire(meter, effect);
    /* A queue's length is news when it changes: of a name that nobody waits for it does not. */
    else if (effect->type == FL_EFF_ENQUEUE || effect->type == FL_EFF_WAIT_END ||
             (effect->type == FL_EFF_GRANT && effect->for_ms != 0))
        fl_top_mark(meter->contended, effect->name, effect->waiters);
    if (is_leader)
        count(meter, effect);
}

/* --- Time, and what is told --- */

void fl_meter_tick(struct fl_meter *meter, uint64_t now_ms)
{
    meter->n_seen = 0;
    if (now_ms - meter->faded_ms < FADE_EVERY_MS)
        return;
    meter->faded_ms = now_ms;
    fl_top_fade(meter->busiest, FADE_FACTOR);
    fl_top_fade(meter->contended, FADE_FACTOR);
}

/* A steady rate holds the count where the fading takes as much as comes. */
static double rate_of(uint64_t count)
{
    return (double)count / UNIT * (1 - FADE_FACTOR) / (FADE_EVERY_MS / 1000.0);
}

static unsigned list_names(const struct fl_top *top, struct fl_figures_name *names)
{
    struct fl_top_entry entries[FL_METER_NAMES];
    size_t n = fl_top_list(top, entries, FL_METER_NAMES);

    for (size_t i = 0; i < n; i++) {
        memcpy(names[i].name, entries[i].name.data, entries[i].name.len);
        names[i].name[entries[i].name.len] = '\0';
        names[i].per_s = rate_of(entries[i].count);
        names[i].waiters = entries[i].mark;
    }
    return (unsigned)n;
}

void fl_meter_figures(const struct fl_meter *meter, struct fl_figures *figures)
{
    const struct fl_figures *sums = &meter->sums;

    figures->leaderships = sums->leaderships;
    figures->grants = sums->grants;
    figures->queued = sums->queued;
    figures->sessions_opened = sums->sessions_opened;
    memcpy(figures->hold_ends, sums->hold_ends, sizeof sums->hold_ends);
    memcpy(figures->wait_ends, sums->wait_ends, sizeof sums->wait_ends);
    memcpy(figures->session_ends, sums->session_ends, sizeof sums->session_ends);
    figures->n_prefixes = sums->n_prefixes;
    memcpy(figures->prefixes, sums->prefixes, sums->n_prefixes * sizeof sums->prefixes[0]);
    figures->n_busiest = list_names(meter->busiest, figures->busiest);
    figures->n_contended = list_names(meter->contended, figures->contended);
}
