#include "core_rig.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"

static const uint64_t key[2] = {1, 2};

double rig_cpu_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

size_t rig_allocated(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

void rig_init(struct rig *rig)
{
    memset(rig, 0, sizeof *rig);
    rig->m = fl_machine_new(key);
    fl_histogram_init(&rig->entries);
    fl_batch_begin(&rig->batch, 0);
}

void rig_deinit(struct rig *rig)
{
    fl_machine_free(rig->m);
    fl_histogram_deinit(&rig->entries);
    fl_buf_deinit(&rig->batch);
}

void rig_add(struct rig *rig, const struct fl_command *command)
{
    fl_batch_add(&rig->batch, command);
}

void rig_submit(struct rig *rig)
{
    double began = rig_cpu_seconds(), took;

    FL_REQUIRE(fl_machine_apply(rig->m, ++rig->index, 1, rig->batch.data, rig->batch.len, rig->sink,
                                rig->ctx) == 0);
    took = rig_cpu_seconds() - began;
    rig->applying += took;
    if (took > rig->longest)
        rig->longest = took;
    fl_histogram_record(&rig->entries, (uint64_t)(took * 1e9));
    fl_buf_clear(&rig->batch);
    fl_batch_begin(&rig->batch, rig->now_ms);
}

void rig_restart(struct rig *rig)
{
    rig->applying = rig->longest = 0;
    fl_histogram_deinit(&rig->entries);
    fl_histogram_init(&rig->entries);
}

struct fl_session_id rig_session(uint64_t i)
{
    return (struct fl_session_id){1, i};
}

void rig_open_sessions(struct rig *rig, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        struct fl_command c = {.type = FL_CMD_OPEN_SESSION,
                               .session = rig_session(i),
                               .client = FL_STR("bench"),
                               .ttl_ms = FL_TTL_MS_DEFAULT};

        rig_add(rig, &c);
        if (i % 1000 == 999)
            rig_submit(rig);
    }
    rig_submit(rig);
}

struct fl_str rig_name(uint64_t i, char *out)
{
    uint64_t mixed = i * UINT64_C(0x9e3779b97f4a7c15);

    snprintf(out, 64, "tenant/%016llx/orders/checkout/line-item-%010u", (unsigned long long)mixed,
             (uint32_t)i);
    return (struct fl_str){out, 60};
}
