#include "net/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static int parse_port(const char *text, unsigned short *ret_port)
{
    unsigned long port = 0;

    if (*text == '\0' || strlen(text) > 5)
        return FL_E_INVALID;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9')
            return FL_E_INVALID;
        port = port * 10 + (unsigned long)(*text - '0');
    }
    if (port > 65535)
        return FL_E_INVALID;
    *ret_port = (unsigned short)port;
    return FL_OK;
}

int fl_address_parse(const char *text, struct fl_address *ret_address)
{
    const char *host = text, *colon = strrchr(text, ':');
    struct fl_address address;
    size_t len;

    if (colon == NULL)
        return FL_E_INVALID;
    len = (size_t)(colon - text);
    if (text[0] == '[') {
        if (len < 2 || text[len - 1] != ']')
            return FL_E_INVALID;
        host++;
        len -= 2;
    } else if (memchr(text, ':', len) != NULL) {
        return FL_E_INVALID; /* an IPv6 address needs its brackets */
    }
    if (len == 0 || len >= sizeof address.host)
        return FL_E_INVALID;
    memcpy(address.host, host, len);
    address.host[len] = '\0';
    if (strcmp(address.host, "*") == 0)
        address.host[0] = '\0';
    if (parse_port(colon + 1, &address.port) < 0)
        return FL_E_INVALID;
    *ret_address = address;
    return FL_OK;
}

int fl_address_numeric(const struct fl_address *address, struct sockaddr_storage *ret_addr)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)ret_addr;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret_addr;
    const char *host = address->host[0] != '\0' ? address->host : "::";

    memset(ret_addr, 0, sizeof *ret_addr);
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(address->port);
        return FL_OK;
    }
    if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(address->port);
        return FL_OK;
    }
    return FL_E_INVALID;
}

const char *fl_address_format(const struct sockaddr *addr, char *out, size_t size)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)addr;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)addr;
    char host[INET6_ADDRSTRLEN];

    if (addr->sa_family == AF_INET && inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host) != NULL)
        snprintf(out, size, "%s:%u", host, ntohs(v4->sin_port));
    else if (addr->sa_family == AF_INET6 &&
             inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host) != NULL)
        snprintf(out, size, "[%s]:%u", host, ntohs(v6->sin6_port));
    else
        snprintf(out, size, "?");
    return out;
}
