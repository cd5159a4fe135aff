/* Random commands, applied by core/ and by the model side by side: every effect, every query and
 * the invariants are compared, the effects are held against the rules (history.h), and now and then
 * the machine is saved and read back. A failure is cut down and told as a story.
 *
 *     property [SEED] [SECONDS]
 *
 * Built with seeded bugs (base/bugs.h) it switches each on, and fails when one is not found. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "base/bugs.h"
#include "base/error.h"
#include "base/random.h"
#include "core/internal.h"
#include "history.h"
#include "model.h"
#include "trace.h"

#define STEPS           400
#define COMMANDS_MAX    3
#define SEEDS_FIXED     20
#define BUG_COMMANDS    3000000
#define SECONDS_DEFAULT 8

/* One log entry. */
struct step {
    uint64_t now_ms, term;
    bool reload, look; /* before it: save and load; after it: compare the queries */
    size_t n;
    struct fl_command commands[COMMANDS_MAX];
};

struct run {
    uint32_t work, looks;
    struct step steps[STEPS];
    size_t n;
};

/* Both, side by side. */
struct pair {
    struct fl_machine *machine;
    struct model *model;
    struct history *history;
    struct fl_buf left, right; /* what they told */
    uint32_t work, looks;
    char why[256]; /* empty: they agree */
};

static const uint64_t hash_key[2] = {11, 13};

/* --- Making up commands: few names, sessions and requests, so that they meet --- */

static struct fl_command some_command(struct fl_random *random, fl_token last, uint64_t term)
{
    static const char *const names[] = {"a", "a/b", "a/c", "b", "\xc3\xa4"};
    static const enum fl_command_type types[] = {
        FL_CMD_ACQUIRE,       FL_CMD_ACQUIRE,        FL_CMD_ACQUIRE,        FL_CMD_ACQUIRE,
        FL_CMD_ACQUIRE,       FL_CMD_ACQUIRE,        FL_CMD_ACQUIRE,        FL_CMD_ACQUIRE,
        FL_CMD_RELEASE,       FL_CMD_RELEASE,        FL_CMD_RELEASE,        FL_CMD_RELEASE,
        FL_CMD_CANCEL,        FL_CMD_CANCEL,         FL_CMD_OPEN_SESSION,   FL_CMD_OPEN_SESSION,
        FL_CMD_CLOSE_SESSION, FL_CMD_EXPIRE_SESSION, FL_CMD_EXPIRE_SESSION, FL_CMD_END_SESSION,
        FL_CMD_NOTE_SILENCE,  FL_CMD_FORCE_RELEASE};
    struct fl_command c = {.type = types[fl_random_below(random, FL_ARRAY_LEN(types))]};

    if (c.type != FL_CMD_FORCE_RELEASE)
        c.session = (struct fl_session_id){0, 1 + fl_random_below(random, 5)};
    if (fl_random_chance(random, 1, 2000)) {
        uint64_t floor = fl_random_chance(random, 1, 8) ? FL_TOKEN_MAX - 50 : last;

        c = (struct fl_command){.type = FL_CMD_RAISE_TOKEN,
                                .token = floor + 1 + fl_random_below(random, 50)};
        if (c.token > FL_TOKEN_MAX)
            c.token = FL_TOKEN_MAX;
    }
    switch (c.type) {
    case FL_CMD_ACQUIRE:
        c.request_id = fl_random_below(random, fl_random_chance(random, 1, 2) ? 12 : 400);
        c.name = fl_str_from(names[fl_random_below(random, FL_ARRAY_LEN(names))]);
        c.mode = (enum fl_mode)fl_random_between(random, FL_MODE_EXCLUSIVE, FL_MODE_COUNTED);
        c.limit = c.mode == FL_MODE_COUNTED ? (uint32_t)fl_random_between(random, 1, 3) : 0;
        c.wait_ms = fl_random_chance(random, 1, 3) ? 0 : (uint32_t)fl_random_below(random, 150);
        c.asker = (uint16_t)fl_random_below(random, 3);
        break;
    case FL_CMD_RELEASE:
    case FL_CMD_FORCE_RELEASE:
        c.name = fl_str_from(names[fl_random_below(random, FL_ARRAY_LEN(names))]);
        c.token = last > 12 ? last - fl_random_below(random, 12) : 1 + fl_random_below(random, 12);
        break;
    case FL_CMD_CANCEL:
        c.request_id = fl_random_below(random, 12);
        c.abandon = fl_random_chance(random, 1, 2);
        if (c.abandon)
            c.asker = (uint16_t)fl_random_below(random, 3);
        break;
    case FL_CMD_OPEN_SESSION:
        c.client = fl_random_chance(random, 1, 20) ? FL_STR("other") : FL_STR("client");
        c.ttl_ms = FL_TTL_MS_MIN;
        c.lock_delay_ms = c.session.low % 2 == 0 ? 40 : 0;
        break;
    case FL_CMD_EXPIRE_SESSION:
        c.term = fl_random_chance(random, 1, 2) ? term : term - 1;
        break;
    case FL_CMD_NOTE_SILENCE:
        c.silence_ms = (uint32_t)fl_random_below(random, 3);
        break;
    default:
        break;
    }
    if (c.type == FL_CMD_FORCE_RELEASE || c.type == FL_CMD_END_SESSION) {
        c.actor = FL_STR("root");
        c.reason = FL_STR("stuck");
    }
    return c;
}

static void some_step(struct fl_random *random, const struct step *before, fl_token last,
                      struct step *step)
{
    *step = (struct step){.now_ms = before->now_ms, .term = before->term};
    if (fl_random_chance(random, 1, 2))
        step->now_ms += fl_random_below(random, 40);
    else if (fl_random_chance(random, 1, 10) && step->now_ms > 20)
        step->now_ms -= 20; /* a new leader whose log time is behind */
    if (fl_random_chance(random, 1, 40))
        step->term++;
    step->reload = fl_random_chance(random, 1, 60);
    step->look = fl_random_chance(random, 1, 12);
    step->n = fl_random_below(random, COMMANDS_MAX + 1);
    for (size_t i = 0; i < step->n; i++) {
        /* What a client sends twice comes twice. */
        if (before->n != 0 && fl_random_chance(random, 1, 8))
            step->commands[i] = before->commands[fl_random_below(random, before->n)];
        else
            step->commands[i] = some_command(random, last, step->term);
    }
}

/* --- Side by side --- */

static void pair_init(struct pair *p, const struct run *run)
{
    *p = (struct pair){.machine = fl_machine_new(hash_key),
                       .model = model_new(run->work, run->looks),
                       .history = history_new(),
                       .work = run->work,
                       .looks = run->looks};
    fl_machine__set_work(p->machine, run->work, run->looks);
}

static void pair_deinit(struct pair *p)
{
    fl_machine_free(p->machine);
    model_free(p->model);
    history_free(p->history);
    fl_buf_deinit(&p->left);
    fl_buf_deinit(&p->right);
}

static void on_left(void *ctx, const struct fl_effect *effect)
{
    struct pair *p = ctx;

    trace_effect(&p->left, effect);
    history_add(p->history, effect);
}

static void on_right(void *ctx, const struct fl_effect *effect)
{
    trace_effect(&((struct pair *)ctx)->right, effect);
}

static void compare(struct pair *p, const char *what)
{
    if (p->why[0] == '\0' &&
        (p->left.len != p->right.len ||
         (p->left.len != 0 && memcmp(p->left.data, p->right.data, p->left.len) != 0)))
        snprintf(p->why, sizeof p->why, "%s differ", what);
}

struct bytes {
    struct fl_buf buf;
    size_t at;
};

static int append(void *ctx, const void *data, size_t len)
{
    fl_buf_put(&((struct bytes *)ctx)->buf, data, len);
    return FL_OK;
}

static long take(void *ctx, void *data, size_t size)
{
    struct bytes *bytes = ctx;
    size_t left = bytes->buf.len - bytes->at;

    if (size > left)
        size = left;
    if (size != 0)
        memcpy(data, bytes->buf.data + bytes->at, size);
    bytes->at += size;
    return (long)size;
}

/* Equal states have equal bytes, and the one that is read back goes on from there. */
static void reload(struct pair *p)
{
    struct bytes first = {0}, second = {0};
    struct fl_machine *loaded = NULL;

    if (fl_machine_save(p->machine, append, &first) < 0 ||
        fl_machine_load(hash_key, take, &first, &loaded) < 0 ||
        fl_machine_save(loaded, append, &second) < 0) {
        snprintf(p->why, sizeof p->why, "a snapshot is not read back");
    } else {
        if (first.buf.len != second.buf.len ||
            memcmp(first.buf.data, second.buf.data, first.buf.len) != 0)
            snprintf(p->why, sizeof p->why, "a snapshot of a snapshot is another");
        fl_machine_free(p->machine);
        p->machine = loaded;
        fl_machine__set_work(loaded, p->work, p->looks);
    }
    fl_buf_deinit(&first.buf);
    fl_buf_deinit(&second.buf);
}

static void look(struct pair *p)
{
    fl_buf_clear(&p->left);
    fl_buf_clear(&p->right);
    trace_machine(&p->left, p->machine);
    model_describe(p->model, &p->right);
    compare(p, "queries");
    if (p->why[0] == '\0')
        fl_machine_check(p->machine, p->why, sizeof p->why);
}

static void pair_step(struct pair *p, uint64_t index, const struct step *step)
{
    struct fl_batch batch = {step->now_ms, (struct fl_command *)step->commands, step->n};
    struct fl_buf bytes = FL_BUF_INIT;

    if (step->reload)
        reload(p);
    fl_buf_clear(&p->left);
    fl_buf_clear(&p->right);
    fl_batch_begin(&bytes, step->now_ms);
    for (size_t i = 0; i < step->n; i++)
        fl_batch_add(&bytes, &step->commands[i]);
    history_set_time(p->history, step->now_ms);
    if (fl_machine_apply(p->machine, index, step->term, bytes.data, bytes.len, on_left, p) < 0)
        snprintf(p->why, sizeof p->why, "a batch is not taken");
    model_apply(p->model, index, step->term, &batch, on_right, p);
    fl_buf_deinit(&bytes);
    compare(p, "effects");
    if (p->why[0] == '\0' && history_fault(p->history) != NULL)
        snprintf(p->why, sizeof p->why, "%s", history_fault(p->history));
    if (step->look && p->why[0] == '\0')
        look(p);
}

/* Fills `run` as it goes, to the step that fails. True when all is well. */
static bool explore(uint64_t seed, struct run *run, uint64_t *ret_commands)
{
    struct fl_random random;
    struct step before = {.term = 1};
    struct pair p;
    bool is_good;

    fl_random_init(&random, seed);
    run->work = fl_random_chance(&random, 1, 2) ? (uint32_t)fl_random_between(&random, 1, 4) : 2000;
    run->looks = fl_random_chance(&random, 1, 2) ? (uint32_t)fl_random_between(&random, 1, 3) : 64;
    pair_init(&p, run);
    for (run->n = 0; run->n < STEPS && p.why[0] == '\0'; run->n++) {
        struct step *step = &run->steps[run->n];

        some_step(&random, &before, model_token(p.model), step);
        pair_step(&p, run->n + 1, step);
        *ret_commands += step->n;
        before = *step;
    }
    is_good = p.why[0] == '\0';
    pair_deinit(&p);
    return is_good;
}

/* --- A failure --- */

static bool still_fails(const struct run *run)
{
    struct pair p;
    bool fails;

    pair_init(&p, run);
    for (size_t i = 0; i < run->n && p.why[0] == '\0'; i++)
        pair_step(&p, i + 1, &run->steps[i]);
    fails = p.why[0] != '\0';
    pair_deinit(&p);
    return fails;
}

/* Leaves out pieces, from halves to single entries, as long as it fails without them. */
static void shrink(struct run *run)
{
    struct run *shorter = fl_xalloc(sizeof *shorter);

    for (size_t piece = run->n / 2 + 1; piece > 0; piece /= 2) {
        for (size_t at = 0; at < run->n;) {
            size_t end = at + piece < run->n ? at + piece : run->n;

            shorter->work = run->work;
            shorter->looks = run->looks;
            shorter->n = run->n - (end - at);
            memcpy(shorter->steps, run->steps, at * sizeof run->steps[0]);
            memcpy(shorter->steps + at, run->steps + end, (run->n - end) * sizeof run->steps[0]);
            if (still_fails(shorter))
                memcpy(run, shorter, sizeof *run);
            else
                at = end;
        }
    }
    free(shorter);
}

static void tell(const struct run *run)
{
    struct pair p;

    pair_init(&p, run);
    printf("with %u steps of work per entry, %u looks:\n", run->work, run->looks);
    for (size_t i = 0; i < run->n && p.why[0] == '\0'; i++) {
        const struct step *step = &run->steps[i];
        struct fl_buf text = FL_BUF_INIT;

        for (size_t n = 0; n < step->n; n++) {
            fl_buf_printf(&text, "    ");
            trace_command(&text, &step->commands[n]);
            fl_buf_printf(&text, "\n");
        }
        printf("entry %zu, term %llu, at %llu ms%s\n%.*s", i + 1, (unsigned long long)step->term,
               (unsigned long long)step->now_ms, step->reload ? ", after a reload" : "",
               (int)text.len, text.len != 0 ? (const char *)text.data : "");
        fl_buf_deinit(&text);
        pair_step(&p, i + 1, step);
    }
    printf("%s\n--- the machine:\n%.*s--- the model:\n%.*s", p.why, (int)p.left.len,
           (const char *)p.left.data, (int)p.right.len, (const char *)p.right.data);
    pair_deinit(&p);
}

#ifdef FL_BUGS

enum fl_bug fl_bug_on;

static const char *const bug_names[] = {"",
#define X(name, what) #name,
                                        FL_BUG_TABLE(X)
#undef X
};

/* How many commands it took to find the bug; 0: it survived. */
static uint64_t commands_to_kill(struct run *run)
{
    uint64_t commands = 0;
    bool is_good = true;

    for (uint64_t seed = 1; is_good && commands < BUG_COMMANDS; seed++)
        is_good = explore(seed, run, &commands);
    return is_good ? 0 : commands;
}

/* With the name of a bug: its story. */
int main(int argc, char **argv)
{
    struct run *run = fl_xalloc(sizeof *run);
    int survivors = 0;

    for (int bug = 1; bug < FL_BUG_COUNT; bug++) {
        uint64_t commands;

        if (strncmp(bug_names[bug], "CORE_", 5) != 0 ||
            (argc > 1 && strcmp(argv[1], bug_names[bug]) != 0))
            continue;
        fl_bug_on = (enum fl_bug)bug;
        commands = commands_to_kill(run);
        if (commands == 0) {
            printf("%-34s SURVIVED\n", bug_names[bug]);
            survivors++;
        } else {
            printf("%-34s found after %llu commands\n", bug_names[bug],
                   (unsigned long long)commands);
            if (argc > 1) {
                shrink(run);
                tell(run);
            }
        }
    }
    free(run);
    return survivors != 0;
}

#else

static double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static bool try_seed(uint64_t seed, struct run *run, uint64_t *commands)
{
    if (explore(seed, run, commands))
        return true;
    printf("seed %llu fails\n", (unsigned long long)seed);
    shrink(run);
    tell(run);
    return false;
}

int main(int argc, char **argv)
{
    struct run *run = fl_xalloc(sizeof *run);
    uint64_t commands = 0, fresh = argc > 1 ? strtoull(argv[1], NULL, 10) : (uint64_t)time(NULL);
    double began = seconds_now(), seconds = argc > 2 ? strtod(argv[2], NULL) : SECONDS_DEFAULT;
    bool is_good = true;

    for (uint64_t seed = 1; is_good && argc <= 1 && seed <= SEEDS_FIXED; seed++)
        is_good = try_seed(seed, run, &commands);
    printf("fresh seed %llu\n", (unsigned long long)fresh);
    for (uint64_t seed = fresh; is_good && seconds_now() - began < seconds; seed++)
        is_good = try_seed(seed, run, &commands);
    printf("%llu commands, %.1f million a minute\n", (unsigned long long)commands,
           (double)commands / (seconds_now() - began) * 60 / 1e6);
    free(run);
    return is_good ? 0 : 1;
}

#endif
