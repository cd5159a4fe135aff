/* Tables for people: columns as wide as they must be, cells escaped so that no name can draw on the
 * terminal. On a terminal that is too narrow the widest are cut; in a file or pipe nothing is. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/str.h"
#include "cli/cli.h"

#define COLUMN_WIDTH_MIN 8
#define CELL_BYTES_MAX   2100 /* a name of 512 bytes, all of them escaped */

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

/* The terminal's columns; 0: it is none, and nothing is cut. */
static int terminal_width(void)
{
    struct winsize size;

    return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* Takes from the widest column until the row fits, or all are narrow. */
static void fit(const struct cli_table *table, int *widths)
{
    int over = (table->n_columns - 1) * 2 - terminal_width();

    if (terminal_width() == 0)
        return;
    for (int c = 0; c < table->n_columns; c++)
        over += widths[c];
    for (; over > 0; over--) {
        int widest = 0;

        for (int c = 1; c < table->n_columns; c++)
            widest = widths[c] > widths[widest] ? c : widest;
        if (widths[widest] <= COLUMN_WIDTH_MIN)
            return;
        widths[widest]--;
    }
}

static size_t bytes_of(const char *text, int width)
{
    size_t at = 0;

    for (; text[at] != '\0'; at++)
        if (((unsigned char)text[at] & 0xc0) != 0x80 && width-- == 0)
            break;
    return at;
}

static void print_row(const struct cli_table *table, const char *const *cells, const int *widths)
{
    for (int c = 0; c < table->n_columns; c++) {
        bool is_cut = width_of(cells[c]) > widths[c];
        int shown = is_cut ? widths[c] : width_of(cells[c]);
        int pad = c + 1 < table->n_columns ? widths[c] - shown + 2 : 0;

        printf("%.*s%s%*s", (int)bytes_of(cells[c], is_cut ? shown - 1 : shown), cells[c],
               is_cut ? "\u2026" : "", pad, "");
    }
    putchar('\n');
}

void cli_table_print(const struct cli_table *table)
{
    int *widths = fl_xcalloc((size_t)table->n_columns, sizeof *widths);

    for (int c = 0; c < table->n_columns; c++)
        widths[c] = column_width(table, c);
    fit(table, widths);
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
