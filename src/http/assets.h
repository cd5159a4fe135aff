/* The dashboard's files, put into the program when it is built. */
#ifndef FL_HTTP_ASSETS_H
#define FL_HTTP_ASSETS_H

#include <stddef.h>

struct fl_asset {
    const char *path; /* "/app.js" */
    const unsigned char *data;
    size_t len;
};

extern const struct fl_asset fl_assets[];
extern const unsigned fl_n_assets;

#endif
