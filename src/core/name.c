#include "core/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bugs.h"

static struct fl_slab *text_slab(struct fl_machine *m, size_t len)
{
    return &m->texts[(len + 3) / 4 - 1];
}

struct fl_str fl_lock_name(const struct fl_machine *m, const struct lock *lock)
{
    const struct fl_slab *slab = &m->texts[(lock->name_len + 3u) / 4 - 1];

    return (struct fl_str){fl_slab_at(slab, lock->text), lock->name_len};
}

static uint64_t hash_of_name(const struct fl_machine *m, struct fl_str name)
{
    return fl_hash_siphash(m->hash_key, name.data, name.len);
}

static uint64_t hash_of_lock(const void *owner, uint32_t handle)
{
    const struct fl_machine *m = owner;

    return hash_of_name(m, fl_lock_name(m, fl_lock_at(m, handle)));
}

static bool has_name(const void *owner, uint32_t handle, const void *key)
{
    const struct fl_machine *m = owner;

    return fl_str_equal(fl_lock_name(m, fl_lock_at(m, handle)), *(const struct fl_str *)key);
}

uint64_t fl_name_stable_hash(struct fl_str name)
{
    uint64_t hash = fl_hash_siphash((struct fl_hash_key){0, 0}, name.data, name.len);

    return hash != 0 ? hash : 1;
}

fl_handle fl_name_find(const struct fl_machine *m, struct fl_str name)
{
    return fl_handle_set_find(&m->by_name, hash_of_name(m, name), has_name, &name);
}

static fl_handle lock_new(struct fl_machine *m, struct fl_str name)
{
    struct fl_slab *texts = text_slab(m, name.len);
    fl_handle handle = fl_slab_take(&m->locks);
    struct lock *lock = fl_lock_at(m, handle);

    FL_REQUIRE(name.len >= 1 && name.len <= FL_NAME_MAX);
    memset(lock, 0, sizeof *lock);
    lock->name_len = (uint16_t)name.len;
    lock->text = fl_slab_take(texts);
    memcpy(fl_slab_at(texts, lock->text), name.data, name.len);
    fl_order_add(m, handle);
    return handle;
}

fl_handle fl_name_add(struct fl_machine *m, struct fl_str name)
{
    fl_handle handle = lock_new(m, name);

    fl_handle_set_add(&m->by_name, handle);
    return handle;
}

fl_handle fl_name_restore(struct fl_machine *m, struct fl_str name)
{
    return lock_new(m, name);
}

void fl_names_restored(struct fl_machine *m)
{
    fl_handle_set_reserve(&m->by_name, m->locks.used);
    for (fl_handle at = fl_order_seek(m, FL_STR(""), false); at != 0; at = fl_order_next(m, at))
        fl_handle_set_add(&m->by_name, at);
}

struct extra *fl_name_need_extra(struct fl_machine *m, fl_handle handle)
{
    struct lock *lock = fl_lock_at(m, handle);
    struct extra *extra;

    if (lock->extra != 0)
        return fl_extra_at(m, lock->extra);
    lock->extra = fl_slab_take(&m->extras);
    extra = fl_extra_at(m, lock->extra);
    memset(extra, 0, sizeof *extra);
    extra->n_holders = lock->holders != 0; /* without an extra there is at most one */
    return extra;
}

static void give_extra(struct fl_machine *m, struct lock *lock)
{
    if (lock->extra == 0)
        return;
    fl_slab_give(&m->extras, lock->extra);
    lock->extra = 0;
}

void fl_name_drop_if_idle(struct fl_machine *m, fl_handle handle)
{
    struct lock *lock = fl_lock_at(m, handle);
    const struct extra *extra = fl_lock_extra(m, lock);

    if (lock->holders != 0 || (extra != NULL && (extra->waiters != 0 || extra->closing != NULL)))
        return;
    give_extra(m, lock);
    if (FL_BUG(CORE_TOKEN_FALLS_WHEN_IDLE) && m->n_holds == 0)
        m->token = 0;
    fl_order_remove(m, handle);
    fl_handle_set_remove(&m->by_name, handle);
    fl_slab_give(text_slab(m, lock->name_len), lock->text);
    fl_slab_give(&m->locks, handle);
}

void fl_names_init(struct fl_machine *m)
{
    fl_slab_init(&m->locks, sizeof(struct lock));
    fl_slab_init(&m->extras, sizeof(struct extra));
    for (uint32_t i = 0; i < TEXT_CLASSES; i++)
        fl_slab_init(&m->texts[i], 4 * (i + 1));
    fl_handle_set_init(&m->by_name, hash_of_lock, m);
    fl_order_init(&m->order);
}

void fl_names_deinit(struct fl_machine *m)
{
    fl_slab_deinit(&m->locks);
    fl_slab_deinit(&m->extras);
    for (uint32_t i = 0; i < TEXT_CLASSES; i++)
        fl_slab_deinit(&m->texts[i]);
    fl_handle_set_deinit(&m->by_name);
    fl_order_deinit(&m->order);
}
