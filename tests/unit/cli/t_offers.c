/* t_offers.c - the price list: a file's dates, and how old a price is. */
#include "base/core/own.h"
#include "base/io/file.h"
#include "cli/cmd_offers.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DAY_S 86400

static struct prices list;

/* What offers_load says of a file with this text. */
static int load(const char *text, struct err *err)
{
    char folder[] = "/tmp/muster-offers-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/prices.txt", folder);
    assert_int_equal(file_write_atomic(path, str_from(text), 0600, NULL), 0);
    int rc = offers_load(str_from(path), &list, err);
    unlink(path);
    rmdir(folder);
    return rc;
}

static void a_date_to_come_is_refused(void **state)
{
    (void)state;
    struct err err = { 0 };
    assert_int_equal(load("h100 aws - on_demand 6.88 2026-11-09 x\n", &err), 0);
    list.count = 7;
    assert_int_equal(load("h100 aws - on_demand 6.88 2026-11-09 x\n"
                          "l4 gcp - on_demand 0.71 2999-01-01 x\n",
                          &err),
                     -EINVAL);
    assert_non_null(
        strstr(err_text(&err, -EINVAL), "prices.txt: the price of l4 at gcp is dated "));
    assert_non_null(strstr(err_text(&err, -EINVAL), " days after today"));
    assert_int_equal(list.count, 7); /* untouched */
    assert_int_equal(offers_load((struct str){ 0 }, &list, &err), 0);
}

static void ages_are_whole_seconds_or_unknown(void **state)
{
    (void)state;
    int64_t now_s = (int64_t)time(NULL);
    int32_t today = (int32_t)(now_s / DAY_S);
    struct price p = { .day = today - 30 };
    int64_t age_s = offers_age_s(&p);
    assert_in_range(age_s, now_s - (today - 30) * (int64_t)DAY_S, 32 * DAY_S);
    p.day = today + 1; /* it may be today where the list was written */
    assert_int_equal(offers_age_s(&p), 0);
    p.day = today + 30; /* the compiled-in list under a clock that is behind */
    assert_int_equal(offers_age_s(&p), -1);
    p.day = PRICE_DATE_UNKNOWN;
    assert_int_equal(offers_age_s(&p), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_date_to_come_is_refused),
        cmocka_unit_test(ages_are_whole_seconds_or_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
