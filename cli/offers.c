/* offers.c - where the price list comes from, and how old a price is. */
#include "cli/offers.h"

#include "base/core/own.h"
#include "base/io/file.h"

#include <time.h>

#define DAY_S 86400.0

int offers_load(struct str path, struct prices *ret, struct err *err)
{
    if (path.len == 0) return prices_parse(prices_text(), ret, err);
    CLEANUP(buf_fini) struct buf text = { 0 };
    int rc = file_read(path.data, OFFERS_FILE_BYTES_MAX, &text, err);
    if (rc < 0) return rc;
    rc = prices_parse(buf_view(&text), ret, err);
    return rc < 0 ? err_prefix(err, rc, "%s", path.data) : 0;
}

double offers_age_days(const struct price *p)
{
    if (p->day == PRICE_DATE_UNKNOWN) return -1;
    double today = (double)time(NULL) / DAY_S;
    return today > p->day ? today - p->day : 0;
}
