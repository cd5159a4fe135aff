/* A lock state machine under a bench: entries of commands, each timed. What it measures is the
 * applying alone, in time on the processor: making up the commands is not in it, nor what else runs
 * on the machine. */
#ifndef FL_BENCH_CORE_RIG_H
#define FL_BENCH_CORE_RIG_H

#include "base/buf.h"
#include "base/histogram.h"
#include "core/machine.h"

struct rig {
    struct fl_machine *m;
    uint64_t index, now_ms;
    struct fl_buf batch;
    double applying, longest; /* seconds */
    struct fl_histogram entries;
    fl_machine_sink sink; /* or NULL */
    void *ctx;
};

void rig_init(struct rig *rig);
void rig_deinit(struct rig *rig);
void rig_add(struct rig *rig, const struct fl_command *command);
/* Applies what was added, also when it is nothing. */
void rig_submit(struct rig *rig);
/* Forgets what was measured. */
void rig_restart(struct rig *rig);

/* Of this thread, on the processor. */
double rig_cpu_seconds(void);
/* What malloc has given out. */
size_t rig_allocated(void);
/* Sessions 0 to n - 1. */
void rig_open_sessions(struct rig *rig, uint64_t n);
struct fl_session_id rig_session(uint64_t i);
/* A 60-byte name; in an order that is not the names': the worse case for an ordered index. `out`:
 * 64 bytes. */
struct fl_str rig_name(uint64_t i, char *out);

#endif
