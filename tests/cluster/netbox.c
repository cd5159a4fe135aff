/* netbox: the network between test hosts, in one process.
 *
 *     netbox --prefix NAME --hosts N --socket PATH [--seed S]
 *
 * Makes N network namespaces NAME-1 ... NAME-N with the addresses 10.99.0.1 ... 10.99.0.N, joined
 * by directed links: each pair in each direction has its own delay, loss, duplication, reordering
 * and cut. (The kernels we test on have no netem; a router of our own is also seeded and directed.)
 * Prints "ready" when packets flow. Ends, and removes the namespaces, on SIGTERM or when its
 * standard input ends, so that nothing is left when a test dies.
 *
 * Commands, one a line, over the Unix socket; each is answered with a line "ok ..." or "error ...".
 * A and B are host numbers or *:
 *
 *     cut A B           nothing passes from A to B (the way back is a link of its own)
 *     heal A B          as new: no cut, no delay, no loss
 *     set A B KEY=VALUE ...
 *         delay=MS or delay=MIN-MAX   each packet waits so long
 *         loss=PERMILLE  dup=PERMILLE
 *         reorder=PERMILLE            such a packet waits 3 more delays, at least 10 ms
 *     drop-to A PORT=N  TCP packets to that port of A vanish; PORT=0 ends it
 *     stats             packets passed, dropped
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/heap.h"
#include "base/random.h"

#define HOSTS_MAX      64
#define CLIENTS_MAX    16
#define PACKET_MAX     65536
#define REORDER_MIN_MS 10
/* Packets under way at a time; beyond it the network drops, as networks do. */
#define UNDER_WAY_MAX 200000

struct link {
    bool is_cut;
    uint32_t delay_min_ms, delay_max_ms;
    uint32_t loss, dup, reorder; /* permille */
};

struct packet {
    struct fl_heap_node due; /* key: when, in microseconds */
    int to;
    size_t len;
    uint8_t data[];
};

struct box {
    const char *prefix, *socket_path;
    int n_hosts;
    int tun[HOSTS_MAX + 1]; /* by host number, from 1 */
    struct link links[HOSTS_MAX + 1][HOSTS_MAX + 1];
    uint16_t dropped_port[HOSTS_MAX + 1];
    struct fl_heap under_way;
    struct fl_random random;
    uint64_t passed, dropped;
    int listener;
    struct client {
        int fd; /* -1: free */
        size_t len;
        char line[512];
    } clients[CLIENTS_MAX];
};

static volatile sig_atomic_t should_end;

static void on_signal(int number)
{
    (void)number;
    should_end = 1;
}

static void die(const char *what)
{
    fprintf(stderr, "netbox: %s: %s\n", what, strerror(errno));
    exit(EXIT_FAILURE);
}

static uint64_t now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* --- Namespaces --- */

static int run(const char *const argv[])
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0)
        return -1;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

static void namespace_name(const struct box *box, int host, char out[64])
{
    snprintf(out, 64, "%.48s-%d", box->prefix, host);
}

static void remove_namespaces(const struct box *box)
{
    for (int host = 1; host <= box->n_hosts; host++) {
        char name[64];

        namespace_name(box, host, name);
        run((const char *const[]){"ip", "netns", "del", name, NULL});
    }
}

static int open_tun(void)
{
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0)
        die("/dev/net/tun");
    snprintf(request.ifr_name, sizeof request.ifr_name, "tun0");
    if (ioctl(fd, TUNSETIFF, &request) < 0)
        die("TUNSETIFF");
    return fd;
}

static void make_host(struct box *box, int host, int home)
{
    char name[64], path[96], address[32];
    int fd;

    namespace_name(box, host, name);
    snprintf(path, sizeof path, "/run/netns/%s", name);
    snprintf(address, sizeof address, "10.99.0.%d/24", host);
    if (run((const char *const[]){"ip", "netns", "add", name, NULL}) < 0)
        die("ip netns add");
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) < 0)
        die("entering a namespace");
    close(fd);
    box->tun[host] = open_tun();
    if (run((const char *const[]){"ip", "link", "set", "lo", "up", NULL}) < 0 ||
        run((const char *const[]){"ip", "addr", "add", address, "dev", "tun0", NULL}) < 0 ||
        run((const char *const[]){"ip", "link", "set", "tun0", "up", "txqueuelen", "10000", NULL}) <
            0)
        die("setting up an interface");
    if (setns(home, CLONE_NEWNET) < 0)
        die("coming home");
}

/* --- Packets --- */

static void deliver(struct box *box, int to, const uint8_t *data, size_t len)
{
    if (write(box->tun[to], data, len) == (ssize_t)len)
        box->passed++;
    else
        box->dropped++;
}

static void send_later(struct box *box, int to, const uint8_t *data, size_t len, uint64_t when_us)
{
    struct packet *packet;

    if (box->under_way.len >= UNDER_WAY_MAX) {
        box->dropped++;
        return;
    }
    packet = fl_xcalloc(1, sizeof *packet + len);
    packet->to = to;
    packet->len = len;
    memcpy(packet->data, data, len);
    fl_heap_set(&box->under_way, &packet->due, when_us);
}

static void deliver_due(struct box *box)
{
    struct fl_heap_node *node;

    while ((node = fl_heap_first(&box->under_way)) != NULL && node->key <= now_us()) {
        struct packet *packet = FL_CONTAINER_OF(node, struct packet, due);

        fl_heap_remove(&box->under_way, node);
        deliver(box, packet->to, packet->data, packet->len);
        free(packet);
    }
}

static bool is_to_dropped_port(const struct box *box, int to, const uint8_t *data, size_t len)
{
    size_t header = (size_t)(data[0] & 15) * 4;

    return box->dropped_port[to] != 0 && data[9] == IPPROTO_TCP && len >= header + 4 &&
           (data[header + 2] << 8 | data[header + 3]) == box->dropped_port[to];
}

static uint32_t draw_delay_ms(struct box *box, const struct link *link)
{
    uint32_t delay_ms =
        (uint32_t)fl_random_between(&box->random, link->delay_min_ms, link->delay_max_ms);
    uint32_t extra_ms = 3 * link->delay_max_ms;

    if (fl_random_chance(&box->random, link->reorder, 1000))
        delay_ms += extra_ms > REORDER_MIN_MS ? extra_ms : REORDER_MIN_MS;
    return delay_ms;
}

static void route(struct box *box, int from, const uint8_t *data, size_t len)
{
    const struct link *link;
    int to, copies;

    /* IPv4 to 10.99.0.N; anything else (IPv6 neighbour discovery, multicast) goes nowhere. */
    if (len < 20 || data[0] >> 4 != 4 || data[16] != 10 || data[17] != 99 || data[18] != 0)
        return;
    to = data[19];
    if (to < 1 || to > box->n_hosts)
        return;
    link = &box->links[from][to];
    if (link->is_cut || is_to_dropped_port(box, to, data, len) ||
        fl_random_chance(&box->random, link->loss, 1000)) {
        box->dropped++;
        return;
    }
    copies = fl_random_chance(&box->random, link->dup, 1000) ? 2 : 1;
    for (; copies > 0; copies--) {
        uint32_t delay_ms = draw_delay_ms(box, link);

        if (delay_ms == 0)
            deliver(box, to, data, len);
        else
            send_later(box, to, data, len, now_us() + (uint64_t)delay_ms * 1000);
    }
}

static void read_packets(struct box *box, int host)
{
    static uint8_t data[PACKET_MAX];
    ssize_t n;

    while ((n = read(box->tun[host], data, sizeof data)) > 0)
        route(box, host, data, (size_t)n);
}

/* --- Commands --- */

static bool parse_hosts(const struct box *box, const char *word, int *ret_first, int *ret_last)
{
    if (word == NULL)
        return false;
    if (strcmp(word, "*") == 0) {
        *ret_first = 1;
        *ret_last = box->n_hosts;
        return true;
    }
    *ret_first = *ret_last = atoi(word);
    return *ret_first >= 1 && *ret_first <= box->n_hosts;
}

static bool change_link(struct link *link, const char *setting)
{
    unsigned low, high;

    if (sscanf(setting, "delay=%u-%u", &low, &high) == 2 && low <= high) {
        link->delay_min_ms = low;
        link->delay_max_ms = high;
        return true;
    }
    if (sscanf(setting, "delay=%u", &low) == 1) {
        link->delay_min_ms = link->delay_max_ms = low;
        return true;
    }
    return sscanf(setting, "loss=%u", &link->loss) == 1 ||
           sscanf(setting, "dup=%u", &link->dup) == 1 ||
           sscanf(setting, "reorder=%u", &link->reorder) == 1;
}

static bool change_links(struct box *box, const char *verb, char **at)
{
    int from, from_last, to, to_last;
    const char *from_word = strsep(at, " "), *to_word = strsep(at, " ");
    char *settings[8];
    int n = 0;

    if (!parse_hosts(box, from_word, &from, &from_last) ||
        !parse_hosts(box, to_word, &to, &to_last))
        return false;
    while (n < 8 && (settings[n] = strsep(at, " ")) != NULL)
        n++;
    for (int a = from; a <= from_last; a++) {
        for (int b = to; b <= to_last; b++) {
            struct link *link = &box->links[a][b];

            if (strcmp(verb, "cut") == 0)
                link->is_cut = true;
            else if (strcmp(verb, "heal") == 0)
                memset(link, 0, sizeof *link);
            for (int i = 0; i < n; i++) {
                if (!change_link(link, settings[i]))
                    return false;
            }
        }
    }
    return true;
}

static bool change_dropped_port(struct box *box, char **at)
{
    const char *host_word = strsep(at, " "), *port_word = strsep(at, " ");
    int host, last;
    unsigned port;

    if (!parse_hosts(box, host_word, &host, &last) || port_word == NULL ||
        sscanf(port_word, "PORT=%u", &port) != 1 || port > 65535)
        return false;
    for (; host <= last; host++)
        box->dropped_port[host] = (uint16_t)port;
    return true;
}

static void run_command(struct box *box, char *line, char *answer, size_t size)
{
    char *at = line;
    const char *verb = strsep(&at, " ");
    bool ok = false;

    if (strcmp(verb, "cut") == 0 || strcmp(verb, "heal") == 0 || strcmp(verb, "set") == 0) {
        ok = change_links(box, verb, &at);
    } else if (strcmp(verb, "drop-to") == 0) {
        ok = change_dropped_port(box, &at);
    } else if (strcmp(verb, "stats") == 0) {
        snprintf(answer, size, "ok passed=%llu dropped=%llu under_way=%zu\n",
                 (unsigned long long)box->passed, (unsigned long long)box->dropped,
                 box->under_way.len);
        return;
    }
    snprintf(answer, size, "%s\n", ok ? "ok" : "error: cannot be understood");
}

static void read_client(struct box *box, struct client *client)
{
    ssize_t n = read(client->fd, client->line + client->len, sizeof client->line - 1 - client->len);
    char *end, answer[256];

    if (n <= 0 || client->len + (size_t)n >= sizeof client->line - 1) {
        close(client->fd);
        client->fd = -1;
        return;
    }
    client->len += (size_t)n;
    client->line[client->len] = '\0';
    while ((end = strchr(client->line, '\n')) != NULL) {
        *end = '\0';
        run_command(box, client->line, answer, sizeof answer);
        if (write(client->fd, answer, strlen(answer)) < 0)
            break;
        client->len -= (size_t)(end + 1 - client->line);
        memmove(client->line, end + 1, client->len + 1);
    }
}

static void accept_client(struct box *box)
{
    int fd = accept4(box->listener, NULL, NULL, SOCK_CLOEXEC);

    for (int i = 0; i < CLIENTS_MAX && fd >= 0; i++) {
        if (box->clients[i].fd < 0) {
            box->clients[i] = (struct client){.fd = fd};
            return;
        }
    }
    if (fd >= 0)
        close(fd);
}

static int listen_at(const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(addr.sun_path, sizeof addr.sun_path, "%s", path);
    unlink(path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof addr) < 0 || listen(fd, 8) < 0)
        die(path);
    return fd;
}

/* --- The loop --- */

static int wait_ms(const struct box *box)
{
    const struct fl_heap_node *first = fl_heap_first(&box->under_way);
    uint64_t now = now_us();

    if (first == NULL)
        return -1;
    return first->key <= now ? 0 : (int)((first->key - now + 999) / 1000);
}

/* Waits for packets, commands, and the end of standard input; false at the end. */
static bool turn(struct box *box)
{
    struct pollfd fds[HOSTS_MAX + CLIENTS_MAX + 2];
    nfds_t n = 0;
    char ignored[64];

    fds[n++] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
    fds[n++] = (struct pollfd){.fd = box->listener, .events = POLLIN};
    for (int i = 0; i < CLIENTS_MAX; i++)
        fds[n++] = (struct pollfd){.fd = box->clients[i].fd, .events = POLLIN};
    for (int host = 1; host <= box->n_hosts; host++)
        fds[n++] = (struct pollfd){.fd = box->tun[host], .events = POLLIN};
    if (poll(fds, n, wait_ms(box)) < 0)
        return errno == EINTR;
    deliver_due(box);
    if (fds[0].revents != 0 && read(STDIN_FILENO, ignored, sizeof ignored) <= 0)
        return false;
    if (fds[1].revents != 0)
        accept_client(box);
    for (int i = 0; i < CLIENTS_MAX; i++) {
        if (box->clients[i].fd >= 0 && fds[2 + i].revents != 0)
            read_client(box, &box->clients[i]);
    }
    for (int host = 1; host <= box->n_hosts; host++) {
        if (fds[2 + CLIENTS_MAX + host - 1].revents != 0)
            read_packets(box, host);
    }
    return true;
}

static void parse_arguments(struct box *box, int argc, char **argv)
{
    uint64_t seed = 1;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--prefix") == 0)
            box->prefix = argv[i + 1];
        else if (strcmp(argv[i], "--socket") == 0)
            box->socket_path = argv[i + 1];
        else if (strcmp(argv[i], "--hosts") == 0)
            box->n_hosts = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[i + 1], NULL, 10);
    }
    if (box->prefix == NULL || box->socket_path == NULL || box->n_hosts < 1 ||
        box->n_hosts > HOSTS_MAX) {
        fprintf(stderr, "usage: netbox --prefix NAME --hosts 1..%d --socket PATH [--seed S]\n",
                HOSTS_MAX);
        exit(64);
    }
    fl_random_init(&box->random, seed);
}

int main(int argc, char **argv)
{
    static struct box box;
    struct sigaction action = {.sa_handler = on_signal};
    int home;

    parse_arguments(&box, argc, argv);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < CLIENTS_MAX; i++)
        box.clients[i].fd = -1;
    home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home < 0)
        die("/proc/self/ns/net");
    for (int host = 1; host <= box.n_hosts; host++)
        make_host(&box, host, home);
    box.listener = listen_at(box.socket_path);
    printf("ready\n");
    fflush(stdout);
    while (!should_end && turn(&box))
        ;
    unlink(box.socket_path);
    remove_namespaces(&box);
    return EXIT_SUCCESS;
}
