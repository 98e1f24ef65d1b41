/* f_exposition.c - reads any bytes as a page of metrics: what a row says, written again as a row of its own, is read
 * as the same row, and the meters of every engine kind are found, or not, in any page. */
#include "agent/engines/engine_driver.h"
#include "agent/engines/meters.h"
#include "base/core/own.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>

static void read_again(const struct exposition_row *row)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct exposition_reader r;
    struct exposition_row back;
    buf_str(&text, row->name);
    if (row->labels.len > 0) {
        buf_str(&text, STR("{"));
        buf_str(&text, row->labels); /* may hold zero bytes */
        buf_str(&text, STR("}"));
    }
    must(buf_printf(&text, " %.17g", row->value) == 0);
    exposition_reader_init(&r, buf_view(&text));
    must(exposition_next(&r, &back));
    must(str_eq(back.name, row->name) && str_eq(back.labels, row->labels));
    must(back.value >= row->value && back.value <= row->value);
    must(!exposition_next(&r, &back) && r.malformed == 0);
}

static void read_meters(struct str page)
{
    for (enum engine_kind k = 0; k < ENGINE_KIND_COUNT; k++) {
        const struct engine_driver *d = engine_driver_of(k);
        struct meters m;
        meters_read(page, d->meter, d->meter_count, &m);
        for (enum meter i = 0; i < METER_COUNT; i++)
            must(m.has[i] ? !isnan(m.value[i]) : m.value[i] == 0);
    }
}

const struct fuzz_cost fuzz_cost = { 100000, 4000 };

void fuzz_one(const uint8_t *data, size_t len)
{
    struct str page = str_of(data, len), value;
    struct exposition_reader r;
    struct exposition_row row;
    uint32_t rows = 0;
    exposition_reader_init(&r, page);
    while (exposition_next(&r, &row)) {
        must(row.name.len > 0 && isfinite(row.value));
        must(row.name.data >= page.data && row.name.data + row.name.len <= page.data + page.len);
        if (exposition_label(&row, "engine", &value))
            must(value.data >= row.labels.data &&
                 value.data + value.len < row.labels.data + row.labels.len);
        if (rows++ < 64) read_again(&row);
    }
    must(rows + r.malformed <= len);
    read_meters(page);
}
