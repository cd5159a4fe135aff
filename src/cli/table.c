/* Tables for people: columns as wide as they must be, cells escaped so that no name can draw on the
 * terminal. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "cli/cli.h"

#define CELL_BYTES_MAX 2100 /* a name of 512 bytes, all of them escaped */

void cli_table_init(struct cli_table *table, const char *const *heads, int n_columns)
{
    *table = (struct cli_table){.heads = heads, .n_columns = n_columns};
}

void cli_table_add(struct cli_table *table, const char *format, ...)
{
    char text[CELL_BYTES_MAX], shown[CELL_BYTES_MAX * 4];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (table->n_cells == table->capacity) {
        table->capacity = fl_grow_capacity(table->capacity, table->n_cells + 1, sizeof(char *));
        table->cells = fl_xrealloc(table->cells, table->capacity * sizeof(char *));
    }
    fl_str_escape(fl_str_from(text), shown, sizeof shown);
    table->cells[table->n_cells++] = fl_xstrdup(shown);
}

/* Characters, not bytes: continuation bytes of UTF-8 take no room. */
static int width_of(const char *text)
{
    int width = 0;

    for (; *text != '\0'; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static int column_width(const struct cli_table *table, int column)
{
    int width = width_of(table->heads[column]);

    for (size_t i = (size_t)column; i < table->n_cells; i += (size_t)table->n_columns)
        width = width_of(table->cells[i]) > width ? width_of(table->cells[i]) : width;
    return width;
}

static void print_row(const struct cli_table *table, const char *const *cells, const int *widths)
{
    for (int c = 0; c < table->n_columns; c++) {
        int pad = c + 1 < table->n_columns ? widths[c] - width_of(cells[c]) + 2 : 0;

        printf("%s%*s", cells[c], pad, "");
    }
    putchar('\n');
}

void cli_table_print(const struct cli_table *table)
{
    int *widths = fl_xcalloc((size_t)table->n_columns, sizeof *widths);

    for (int c = 0; c < table->n_columns; c++)
        widths[c] = column_width(table, c);
    print_row(table, table->heads, widths);
    for (size_t i = 0; i < table->n_cells; i += (size_t)table->n_columns)
        print_row(table, (const char *const *)&table->cells[i], widths);
    free(widths);
}

void cli_table_deinit(struct cli_table *table)
{
    for (size_t i = 0; i < table->n_cells; i++)
        free(table->cells[i]);
    free(table->cells);
}
