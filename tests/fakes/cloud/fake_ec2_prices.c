/* fake_ec2_prices.c - tells what the fake of EC2 sells for: the history of spot prices, and the price list. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/date.h"
#include "tests/fakes/cloud/fake_ec2_answer.h"

#include <stdio.h>

#define SECOND ((int64_t)1000000)

static bool wants_type(const struct ec2_answer *a, const char *type)
{
    for (int i = 1; i <= 64; i++)
        if (str_eq(fake_ec2_get_n(a, "InstanceType.#", i), str_from(type))) return true;
    return false;
}

/* A page has the types of one zone. */
void fake_ec2_describe_spot_prices(struct ec2_answer *a)
{
    static const char *const names[] = { "InstanceType.#",   "ProductDescription.#",
                                         "StartTime",        "EndTime",
                                         "AvailabilityZone", "MaxResults",
                                         "NextToken",        NULL };
    const struct fleet_config *c = &a->fleet->config;
    char date[DATE_BYTES];
    int64_t from_us;
    uint64_t zone = 0;
    struct str token = fake_ec2_get(a, "NextToken");
    a->row = fake_fleet_meet(a->fleet, FLEET_PRICES, NULL, NULL, a->now_us);
    if (!fake_ec2_check_names(a, names)) return;
    if ((token.data && str_to_u64(token, &zone) < 0) || zone >= c->zone_count ||
        date_parse(fake_ec2_get(a, "StartTime"), &from_us) < 0) {
        fake_ec2_refuse_form(a, "InvalidParameterValue", "StartTime or NextToken");
        return;
    }
    if (fake_ec2_refuse_fault(a)) return;
    date_print(from_us - 1000 * SECOND, date);
    fake_ec2_begin(a, "DescribeSpotPriceHistory");
    buf_text(&a->out.body, "<spotPriceHistorySet>");
    for (uint32_t i = 0; i < c->type_count; i++) {
        if (!wants_type(a, c->type[i].name) || c->type[i].spot_udollars_h == 0) continue;
        buf_text(&a->out.body, "<item>");
        fake_ec2_put(a, "instanceType", c->type[i].name);
        fake_ec2_put(a, "productDescription", "Linux/UNIX");
        buf_printf(&a->out.body, "<spotPrice>%.6f</spotPrice>",
                   (double)c->type[i].spot_udollars_h / 1e6 * (1 + 0.1 * (double)zone));
        fake_ec2_put(a, "timestamp", date);
        fake_ec2_put(a, "availabilityZone", c->zone[zone]);
        buf_text(&a->out.body, "</item>");
    }
    buf_text(&a->out.body, "</spotPriceHistorySet>");
    if (zone + 1 < c->zone_count)
        buf_printf(&a->out.body, "<nextToken>%llu</nextToken>", (unsigned long long)zone + 1);
    fake_ec2_end(a, "DescribeSpotPriceHistory");
}

/* ---- reservations ---- */

uint32_t fake_ec2_reserved(const struct ec2_answer *a)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < a->fleet->count; i++) {
        const struct fleet_machine *m = &a->fleet->machine[i];
        bool there = m->removed_us == 0 || m->removed_us > a->now_us;
        used += there && a->e->extra[i].reserved;
    }
    return used;
}

/* Behind another's, on a page of its own. */
void fake_ec2_describe_reservations(struct ec2_answer *a)
{
    static const char *const names[] = { "Filter.#.Name", "Filter.#.Value.#", "MaxResults",
                                         "NextToken", NULL };
    const struct ec2_reservation *r = &a->e->reservation;
    bool second = fake_ec2_get(a, "NextToken").data;
    a->row = fake_fleet_meet(a->fleet, FLEET_PRICES, NULL, NULL, a->now_us);
    if (!fake_ec2_check_names(a, names)) return;
    if (a->e->no_reservations) {
        fake_ec2_refuse(a, 403, "UnauthorizedOperation", "not authorized for this operation");
        return;
    }
    if (fake_ec2_refuse_fault(a)) return;
    fake_ec2_begin(a, "DescribeCapacityReservations");
    buf_text(&a->out.body, "<capacityReservationSet><item>");
    fake_ec2_put(a, "capacityReservationId", second ? r->id : "cr-of-others");
    fake_ec2_put(a, "state", "active");
    buf_printf(&a->out.body,
               "<totalInstanceCount>%u</totalInstanceCount>"
               "<availableInstanceCount>%u</availableInstanceCount>",
               r->total, r->total - min_u32(fake_ec2_reserved(a), r->total));
    buf_text(&a->out.body, "</item></capacityReservationSet>");
    if (r->id && !second) fake_ec2_put(a, "nextToken", "more");
    fake_ec2_end(a, "DescribeCapacityReservations");
}

/* ---- GetProducts ---- */

static int take_filter(void *ctx, struct str item)
{
    CLEANUP(buf_fini) struct buf name = { 0 };
    CLEANUP(buf_fini) struct buf value = { 0 };
    char *type = ctx;
    if (json_path_text(item, "Field", &name) < 0 || json_path_text(item, "Value", &value) < 0)
        return -EINVAL;
    if (str_eq(buf_view(&name), STR("instanceType")))
        snprintf(type, FLEET_TEXT, STR_FMT, STR_ARG(buf_view(&value)));
    return 0;
}

static const struct form_field filter_form[] = {
    { "Type", FORM_TEXT, true, NULL },
    { "Field", FORM_TEXT, true, NULL },
    { "Value", FORM_TEXT, true, NULL },
    { 0 },
};
static const struct form_field products_form[] = {
    { "ServiceCode", FORM_TEXT, true, NULL },        { "FormatVersion", FORM_TEXT, false, NULL },
    { "Filters", FORM_OBJECTS, false, filter_form }, { "MaxResults", FORM_WHOLE, false, NULL },
    { "NextToken", FORM_TEXT, false, NULL },         { 0 },
};

static void put_product(struct buf *out, double price)
{
    buf_printf(out,
               "{\"product\":{\"sku\":\"S\"},\"terms\":{\"OnDemand\":{\"S.T\":{"
               "\"priceDimensions\":{\"S.T.6\":{\"unit\":\"Hrs\",\"pricePerUnit\":"
               "{\"USD\":\"%.10f\"}}}}}}}",
               price);
}

void fake_ec2_get_products(struct ec2_answer *a)
{
    CLEANUP(buf_fini) struct buf product = { 0 };
    char type[FLEET_TEXT] = "", why[FORM_WHY_BYTES];
    struct json_writer w;
    const struct fleet_config *c = &a->fleet->config;
    a->row = fake_fleet_meet(a->fleet, FLEET_PRICES, NULL, NULL, a->now_us);
    if (form_check(a->ask->body, products_form, why) < 0 ||
        json_path_each(a->ask->body, "Filters", take_filter, type) < 0) {
        fake_ec2_refuse_form(a, "InvalidParameterException", "no filters");
        return;
    }
    if (a->e->no_price_list) {
        fake_ec2_refuse(a, 400, "AccessDeniedException",
                        "not authorized to perform pricing:GetProducts");
        return;
    }
    if (fake_ec2_refuse_fault(a)) return;
    a->out.status = 200;
    json_writer_init(&w, &a->out.body);
    json_object(&w);
    json_kv_text(&w, "FormatVersion", "aws_v1");
    json_key(&w, "PriceList");
    json_array(&w);
    for (uint32_t i = 0; i < c->type_count; i++) {
        if (strcmp(c->type[i].name, type) != 0) continue;
        put_product(&product, (double)c->type[i].price_udollars_h / 1e6);
        json_put_str(&w, buf_view(&product));
    }
    json_array_end(&w);
    json_object_end(&w);
}
