#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <jansson.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/dev.h"

#define NODES_DEFAULT 5
#define PORT_DEFAULT  3362
#define PORT_STEP     10 /* node 1 at 3362 to 3364, node 2 at 3372 to 3374, ... */

static bool complain(const char *what)
{
    fprintf(stderr, "fencelock dev: %s: %s\n", what, strerror(errno));
    return false;
}

static bool make_dir(const char *path)
{
    return mkdir(path, 0700) == 0 || errno == EEXIST ? true : complain(path);
}

/* A port of the loopback address that is free now. The socket stays open until all are chosen, so
 * that none is chosen twice. */
static int take_free_port(unsigned *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, len) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &len) == 0)
        *ret_port = ntohs(address.sin_port);
    return fd;
}

static void choose_free_ports(struct dev *dev)
{
    int fds[3 * DEV_NODES_MAX];

    for (unsigned i = 0; i < dev->n_nodes; i++) {
        fds[3 * i] = take_free_port(&dev->nodes[i].grpc_port);
        fds[3 * i + 1] = take_free_port(&dev->nodes[i].peer_port);
        fds[3 * i + 2] = take_free_port(&dev->nodes[i].http_port);
    }
    for (unsigned i = 0; i < 3 * dev->n_nodes; i++)
        close(fds[i]);
}

static void choose_ports(struct dev *dev, unsigned first)
{
    if (first == 0) {
        choose_free_ports(dev);
        return;
    }
    for (unsigned i = 0; i < dev->n_nodes; i++) {
        dev->nodes[i].grpc_port = first + i * PORT_STEP;
        dev->nodes[i].peer_port = first + i * PORT_STEP + 1;
        dev->nodes[i].http_port = first + i * PORT_STEP + 2;
    }
}

static bool save(const struct dev *dev)
{
    char path[PATH_MAX];
    json_t *nodes = json_array(), *document = json_pack("{s:o}", "nodes", nodes);
    int r;

    for (unsigned i = 0; i < dev->n_nodes; i++)
        json_array_append_new(nodes, json_pack("{s:i, s:i, s:i, s:i}", "id", (int)i + 1,
                                               "grpc_port", (int)dev->nodes[i].grpc_port,
                                               "peer_port", (int)dev->nodes[i].peer_port,
                                               "http_port", (int)dev->nodes[i].http_port));
    snprintf(path, sizeof path, "%s/dev.json", dev->dir);
    r = json_dump_file(document, path, JSON_INDENT(2));
    json_decref(document);
    return r == 0 ? true : complain(path);
}

static bool load_nodes(struct dev *dev, json_t *nodes)
{
    size_t n = json_array_size(nodes);

    if (n == 0 || n > DEV_NODES_MAX)
        return false;
    dev->n_nodes = (unsigned)n;
    for (size_t i = 0; i < n; i++) {
        int grpc = 0, peer = 0, http = 0;

        if (json_unpack(json_array_get(nodes, i), "{s:i, s:i, s?i}", "grpc_port", &grpc,
                        "peer_port", &peer, "http_port", &http) < 0 ||
            grpc <= 0 || grpc > 65535 || peer <= 0 || peer > 65535 || http < 0 || http > 65535)
            return false;
        dev->nodes[i].grpc_port = (unsigned)grpc;
        dev->nodes[i].peer_port = (unsigned)peer;
        dev->nodes[i].http_port = (unsigned)http;
        if (http == 0) /* an earlier release chose none */
            close(take_free_port(&dev->nodes[i].http_port));
    }
    return true;
}

/* 1: read; 0: there is none; -1: complained. */
static int load(struct dev *dev, unsigned n_nodes, int port)
{
    char path[PATH_MAX];
    json_error_t error;
    json_t *document;
    bool is_good;

    snprintf(path, sizeof path, "%s/dev.json", dev->dir);
    if (access(path, F_OK) < 0)
        return 0;
    document = json_load_file(path, 0, &error);
    is_good = document != NULL && load_nodes(dev, json_object_get(document, "nodes"));
    json_decref(document);
    if (!is_good) {
        fprintf(stderr, "fencelock dev: %s is damaged: remove the directory to begin anew\n", path);
        return -1;
    }
    if ((n_nodes != 0 && n_nodes != dev->n_nodes) ||
        (port > 0 && (unsigned)port != dev->nodes[0].grpc_port)) {
        fprintf(stderr,
                "fencelock dev: %s was made with --nodes %u --port %u; leave those options out, or "
                "take another --dir\n",
                dev->dir, dev->n_nodes, dev->nodes[0].grpc_port);
        return -1;
    }
    return 1;
}

static bool choose_dir(struct dev *dev, const char *dir)
{
    const char *tmp = getenv("TMPDIR");
    char path[PATH_MAX];

    if (dir == NULL) {
        snprintf(dev->dir, sizeof dev->dir, "%s/fencelock-dev-XXXXXX",
                 tmp != NULL && tmp[0] != '\0' ? tmp : "/tmp");
        dev->is_temporary = mkdtemp(dev->dir) != NULL;
        return dev->is_temporary ? true : complain(dev->dir);
    }
    if (!make_dir(dir))
        return false;
    if (realpath(dir, path) == NULL || strlen(path) >= sizeof dev->dir)
        return complain(dir);
    strcpy(dev->dir, path);
    return true;
}

static bool make_dirs(struct dev *dev)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/nodes", dev->dir);
    if (!make_dir(path))
        return false;
    for (unsigned i = 0; i < dev->n_nodes; i++) {
        struct dev_node *node = &dev->nodes[i];
        int n = snprintf(path, sizeof path, "%s/nodes/%u", dev->dir, i + 1);

        if (n < 0 || (size_t)n >= sizeof node->dir || !make_dir(path))
            return false;
        memcpy(node->dir, path, (size_t)n + 1);
    }
    return true;
}

bool dev_prepare(struct dev *dev, const char *dir, unsigned n_nodes, int port)
{
    int loaded;

    if (!choose_dir(dev, dir))
        return false;
    loaded = load(dev, n_nodes, port);
    if (loaded < 0)
        return false;
    if (loaded == 0) {
        dev->n_nodes = n_nodes != 0 ? n_nodes : NODES_DEFAULT;
        choose_ports(dev, port >= 0 ? (unsigned)port : PORT_DEFAULT);
        if (!save(dev))
            return false;
    }
    for (unsigned i = 0; i < dev->n_nodes; i++)
        snprintf(dev->endpoints + strlen(dev->endpoints),
                 sizeof dev->endpoints - strlen(dev->endpoints), "%s127.0.0.1:%u", i > 0 ? "," : "",
                 dev->nodes[i].grpc_port);
    return make_dirs(dev);
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status, (void)type, (void)walk;
    return remove(path);
}

void dev_clean_up(const struct dev *dev)
{
    if (dev->is_temporary && nftw(dev->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS) < 0)
        complain(dev->dir);
}
