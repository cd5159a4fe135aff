/* "HOST:PORT", "[V6]:PORT" and, for listening, "*:PORT" (every address of both families). */
#ifndef FL_NET_ADDRESS_H
#define FL_NET_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#define FL_ADDRESS_HOST_SIZE 256

struct fl_address {
    char host[FL_ADDRESS_HOST_SIZE]; /* without brackets; "" for "*" */
    unsigned short port;
};

/* FL_E_INVALID when it is not of that form. */
int fl_address_parse(const char *text, struct fl_address *ret_address);

/* The socket address of a numeric host ("" is "::", which takes IPv4 too). FL_E_INVALID for a host
 * name. */
int fl_address_numeric(const struct fl_address *address, struct sockaddr_storage *ret_addr);

/* "HOST:PORT" of a socket address, or "?"; returns `out`. */
const char *fl_address_format(const struct sockaddr *addr, char *out, size_t size);

#endif
