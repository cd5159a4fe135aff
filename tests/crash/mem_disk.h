/* A disk in memory with the weakest semantics that POSIX allows, for one directory.
 *
 * What was written and not synced may survive a power cut or not, each 512-byte sector by itself
 * and in any of its versions; so may a size, without the data. A name that was made, renamed or
 * removed is durable only after the directory was synced; until then any subset of such changes
 * may survive. */
#ifndef FL_TESTS_CRASH_MEM_DISK_H
#define FL_TESTS_CRASH_MEM_DISK_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/random.h"
#include "raft/disk.h"

#define MEM_DIRECTORY "/d"
#define MEM_SECTOR    512u

/* Walks through all ways a power cut can end, or samples them. */
struct mem_choices {
    unsigned n, at;
    uint32_t digits[512], radixes[512];
    struct fl_random *random; /* NULL: in order */
};
/* Begins again with the next combination; false when all were had. */
bool mem_choices_next(struct mem_choices *choices);

enum mem_fault { MEM_FAULT_NONE, MEM_FAULT_IO, MEM_FAULT_NOSPACE, MEM_FAULT_SHORT };

struct mem_disk {
    struct fl_disk disk;
    struct mem_name *names; /* as the process sees them */
    unsigned n_names;
    struct mem_name *durable; /* as they survive */
    unsigned n_durable;
    struct mem_change *changes; /* of names, not synced */
    unsigned n_changes;
    struct mem_file **files; /* by handle */
    unsigned n_files;
    bool is_made, is_made_durably;
    _Atomic uint64_t capacity; /* bytes in all files; 0: no bound */

    /* Called after each call that changed something, or synced it. */
    void (*changed)(void *ctx);
    void *ctx;
    /* The call with this number fails (counted from 1; 0: none). */
    uint64_t calls, fault_at;
    enum mem_fault fault;
    bool fault_hit;
    jmp_buf *failed; /* where fail() goes */
    char failure[640];
};

struct mem_disk *mem_disk_new(void);
void mem_disk_free(struct mem_disk *disk);
/* What is there after a power cut. */
struct mem_disk *mem_disk_crash(const struct mem_disk *disk, struct mem_choices *choices);
/* What is there when only the process ended: what was not synced still is not. */
struct mem_disk *mem_disk_kill(const struct mem_disk *disk);
/* All of it, as if it had been synced. */
struct mem_disk *mem_disk_copy(const struct mem_disk *disk);

/* For damaging files: the content of a name, or NULL. Borrowed. */
uint8_t *mem_disk_content(struct mem_disk *disk, const char *name, size_t *ret_size);
const char *mem_disk_name(const struct mem_disk *disk, unsigned i); /* NULL at the end */
void mem_disk_resize(struct mem_disk *disk, const char *name, size_t size);
void mem_disk_remove(struct mem_disk *disk, const char *name);

#endif
