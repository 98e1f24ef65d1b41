/* offers.c - where the price list comes from, and how old a price is. */
#include "cli/offers.h"

#include "base/core/own.h"
#include "base/io/file.h"

#include <time.h>

#define DAY_S 86400

static int64_t now_s(void)
{
    return (int64_t)time(NULL);
}

static bool is_dated_ahead(const struct price *p, int64_t at_s)
{
    return p->day != PRICE_DATE_UNKNOWN && p->day > at_s / DAY_S + 1;
}

static int check_dates(const struct prices *list, struct err *err)
{
    int64_t at_s = now_s();
    for (uint32_t i = 0; i < list->count; i++) {
        const struct price *p = &list->row[i];
        if (!is_dated_ahead(p, at_s)) continue;
        return err_set(err, -EINVAL, "the price of %s at %s is dated %lld days after today (UTC)",
                       p->hardware, p->provider, (long long)(p->day - at_s / DAY_S));
    }
    return 0;
}

int offers_load(struct str path, struct prices *ret, struct err *err)
{
    if (path.len == 0) return prices_parse(prices_text(), ret, err);
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct prices list;
    int rc = file_read(path.data, OFFERS_FILE_BYTES_MAX, &text, err);
    if (rc < 0) return rc;
    rc = prices_parse(buf_view(&text), &list, err);
    if (rc == 0) rc = check_dates(&list, err);
    if (rc < 0) return err_prefix(err, rc, "%s", path.data);
    *ret = list;
    return 0;
}

int64_t offers_age_s(const struct price *p)
{
    int64_t at_s = now_s();
    if (p->day == PRICE_DATE_UNKNOWN || is_dated_ahead(p, at_s)) return -1;
    int64_t age_s = at_s - (int64_t)p->day * DAY_S;
    return age_s > 0 ? age_s : 0;
}
