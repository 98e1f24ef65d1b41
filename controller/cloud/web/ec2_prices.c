/* ec2_prices.c - asks what EC2's offers cost: DescribeSpotPriceHistory once for all spot types, and GetProducts of
 * the price list for each type that is sold on demand.
 *
 *     begin ──► (reservations ──►) spot page ──► spot page ──► type ──► type ──► (a template is cleared away ──►) end
 *
 * The history from now on has the price that is in force, once for each type, zone and product. Of several zones and
 * types the dearest counts: the instance may be that one. A zone without a price does not sell the type, and is passed
 * over. What an instance is and where it is told when it is made, and it is then paid for as that.
 *
 * A capacity reservation is billed whether it is used or not: as many instances as it has are reserved, unless the
 * offer says how many. Without the right to look at reservations none is.
 *
 * The price list is another service, with an own right. Without that right prices on demand stay unknown, and spot
 * prices are told all the same. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/date.h"
#include "controller/cloud/web/ec2.h"

#include <string.h>

static const struct web_offer *offer_at(const struct web_provider *p, uint32_t i)
{
    return &p->settings->offer[i];
}

static bool is_asked(const struct web_provider *p, uint32_t i, bool spot)
{
    const struct web_offer *o = offer_at(p, i);
    return !o->price_given && o->offer.spot == spot;
}

/* The types of all offers in a row: an offer's index, and that of the type. */
#define TYPES_EACH (WEB_TYPES_MAX + 1)

static struct str type_at(const struct web_provider *p, uint32_t at)
{
    return ec2_type(offer_at(p, at / TYPES_EACH), at % TYPES_EACH);
}

/* True if the price of this type is to be asked for: no offer before has the type and the purchase, so that its price
 * is taken with that one's. */
static bool is_first(const struct web_provider *p, uint32_t at, bool spot)
{
    struct str type = type_at(p, at);
    if (!type.data || !is_asked(p, at / TYPES_EACH, spot)) return false;
    for (uint32_t i = 0; i < at; i++)
        if (is_asked(p, i / TYPES_EACH, spot) && str_eq(type_at(p, i), type)) return false;
    return true;
}

static void begin(const struct web_provider *p, struct web_op *op)
{
    for (uint32_t i = 0; i < p->settings->offer_count; i++) {
        const struct web_offer *o = offer_at(p, i);
        struct cloud_price *c = &op->price[op->count++];
        *c = (struct cloud_price){ .known = o->price_given, .price_h = o->offer.price_h };
        must(name_copy(c->offer, sizeof c->offer, str_from(o->offer.name)) == 0);
        web_text_copy(c->hardware, sizeof c->hardware, o->type);
        memset(ec2_of(p)->price_h[i], 0, sizeof ec2_of(p)->price_h[i]);
    }
}

/* Takes what a type costs in a zone, or in all of them where `zone` is empty. */
static void take_price(const struct web_provider *p, struct web_op *op, bool spot, struct str type,
                       struct str zone, double price_h)
{
    struct ec2_place place[EC2_PLACES_MAX];
    for (uint32_t i = 0; i < op->count; i++) {
        const struct web_offer *o = offer_at(p, i);
        struct cloud_price *c = &op->price[i];
        uint32_t count = is_asked(p, i, spot) ? ec2_places(p->settings, o, place) : 0;
        for (uint32_t k = 0; k < count; k++) {
            bool is_there = zone.len == 0 || place[k].zone.len == 0 || str_eq(place[k].zone, zone);
            if (!is_there || !str_eq(place[k].type, type)) continue;
            double *has = &ec2_of(p)->price_h[i][k];
            *has = *has > price_h ? *has : price_h;
            if (c->known && c->price_h >= price_h) continue;
            c->known = true;
            c->price_h = price_h;
        }
    }
}

double ec2_price_of(const struct web_provider *p, struct str offer, struct str type,
                    struct str zone)
{
    struct ec2_place place[EC2_PLACES_MAX];
    for (uint32_t i = 0; i < p->settings->offer_count; i++) {
        if (!str_eq(str_from(offer_at(p, i)->offer.name), offer)) continue;
        uint32_t count = ec2_places(p->settings, offer_at(p, i), place);
        for (uint32_t k = 0; k < count; k++)
            if (str_eq(place[k].type, type) &&
                (place[k].zone.len == 0 || str_eq(place[k].zone, zone)))
                return ec2_of(p)->price_h[i][k];
    }
    return 0;
}

/* ---- spot ---- */

/* False: no offer wants it. */
static bool ask_spot(const struct web_provider *p, struct web_op *op, struct str next,
                     int64_t wall_us, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    char date[DATE_BYTES];
    uint32_t types = 0;
    aws_form(&body, "DescribeSpotPriceHistory", EC2_VERSION);
    for (uint32_t i = 0; i < op->count * TYPES_EACH; i++)
        if (is_first(p, i, true)) aws_put(&body, type_at(p, i), "InstanceType.%u", ++types);
    if (types == 0) return false;
    date_print(wall_us + p->login.skew_us, date);
    aws_put_text(&body, date, "StartTime");
    aws_put_text(&body, "Linux/UNIX", "ProductDescription.1");
    aws_put_text(&body, "Linux/UNIX (Amazon VPC)", "ProductDescription.2");
    if (next.len > 0) aws_put(&body, next, "NextToken");
    ec2_ask(p, op, &body, wall_us, ret);
    return true;
}

static void take_spot(const struct web_provider *p, struct web_op *op, const struct xml_node *item)
{
    double price_h;
    struct str type = xml_text(item, "instanceType"), zone = xml_text(item, "availabilityZone");
    if (str_to_f64(xml_text(item, "spotPrice"), &price_h) == 0 && price_h > 0 && zone.len > 0)
        take_price(p, op, true, type, zone, price_h);
}

/* ---- on demand ---- */

static void put_filter(struct json_writer *w, const char *field, struct str value)
{
    json_object(w);
    json_kv_text(w, "Type", "TERM_MATCH");
    json_kv_text(w, "Field", field);
    json_kv_str(w, "Value", value);
    json_object_end(w);
}

static int write_products(const struct web_provider *p, struct str type, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_text(&w, "ServiceCode", "AmazonEC2");
    json_kv_text(&w, "FormatVersion", "aws_v1");
    json_key(&w, "Filters");
    json_array(&w);
    put_filter(&w, "regionCode", p->settings->section->region);
    put_filter(&w, "instanceType", type);
    put_filter(&w, "operatingSystem", STR("Linux"));
    put_filter(&w, "preInstalledSw", STR("NA"));
    put_filter(&w, "tenancy", STR("Shared"));
    put_filter(&w, "capacitystatus", STR("Used"));
    json_array_end(&w);
    json_object_end(&w);
    return out->rc;
}

/* Asks for the next type from `from` on; the stage is its index and one. Without one the op goes on to its end. */
static void ask_type(const struct web_provider *p, struct web_op *op, uint32_t from,
                     int64_t wall_us, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    const struct aws_service service = { .endpoint = ec2_of(p)->pricing,
                                         .region = ec2_of(p)->pricing_region,
                                         .name = STR("pricing"),
                                         .target = STR("AWSPriceListService.GetProducts") };
    uint32_t i = from;
    while (i < op->count * TYPES_EACH && !is_first(p, i, false))
        i++;
    op->stage = i + 1;
    if (i == op->count * TYPES_EACH || service.endpoint.len == 0)
        ec2_fleet_sweep(p, op, NULL, wall_us, ret);
    else if (write_products(p, type_at(p, i), &body) < 0)
        web_refuse(ret, OFFER_TRANSIENT, "no memory for a request");
    else
        aws_ask(p, op, &service, &body, wall_us, ret);
}

struct products {
    const struct web_provider *p;
    double price_h; /* the dearest; below 0: none */
};

static int take_unit(void *ctx, struct str name, struct str value)
{
    struct products *r = ctx;
    CLEANUP(buf_fini) struct buf text = { 0 };
    double price, dollars;
    if (json_path_text(value, "", &text) < 0 || str_to_f64(buf_view(&text), &price) < 0) return 0;
    if (price > 0 && web_dollars(r->p->settings, name, price, &dollars) && dollars > r->price_h)
        r->price_h = dollars;
    return 0;
}

static int take_dimension(void *ctx, struct str name, struct str value)
{
    CLEANUP(buf_fini) struct buf unit = { 0 };
    (void)name;
    if (json_path_text(value, "unit", &unit) < 0 || !str_eq(buf_view(&unit), STR("Hrs"))) return 0;
    (void)json_path_each_member(value, "pricePerUnit", take_unit, ctx);
    return 0;
}

static int take_term(void *ctx, struct str name, struct str value)
{
    (void)name;
    (void)json_path_each_member(value, "priceDimensions", take_dimension, ctx);
    return 0;
}

/* A product is a text that is JSON itself. */
static int take_product(void *ctx, struct str item)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (json_path_text(item, "", &text) == 0)
        (void)json_path_each_member(buf_view(&text), "terms.OnDemand", take_term, ctx);
    return 0;
}

static void take_type(const struct web_provider *p, struct web_op *op, const struct web_reply *r)
{
    struct products found = { .p = p, .price_h = -1 };
    (void)json_path_each(r->body, "PriceList", take_product, &found);
    if (found.price_h > 0)
        take_price(p, op, false, type_at(p, op->stage - 1), STR(""), found.price_h);
}

/* ---- reservations ---- */

/* False: no offer has one. */
static bool ask_reservations(const struct web_provider *p, struct web_op *op, struct str next,
                             int64_t wall_us, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    bool any = false;
    for (uint32_t i = 0; i < op->count; i++)
        any = any || offer_at(p, i)->section->capacity_reservation.len > 0;
    if (!any) return false;
    aws_form(&body, "DescribeCapacityReservations", EC2_VERSION);
    aws_put_text(&body, "state", "Filter.1.Name");
    aws_put_text(&body, "active", "Filter.1.Value.1");
    aws_put_text(&body, "200", "MaxResults");
    if (next.len > 0) aws_put(&body, next, "NextToken");
    op->stage = EC2_RESERVED;
    ec2_ask(p, op, &body, wall_us, ret);
    return true;
}

static void take_reservation(const struct web_provider *p, struct web_op *op,
                             const struct xml_node *item)
{
    uint64_t total, free;
    struct str id = xml_text(item, "capacityReservationId");
    if (str_to_u64(xml_text(item, "totalInstanceCount"), &total) < 0 ||
        str_to_u64(xml_text(item, "availableInstanceCount"), &free) < 0)
        return;
    for (uint32_t i = 0; i < op->count; i++) {
        struct cloud_price *c = &op->price[i];
        if (!str_eq(offer_at(p, i)->section->capacity_reservation, id)) continue;
        c->room_known = true;
        c->nodes = (uint32_t)min_u64(total, UINT32_MAX);
        c->room = (uint32_t)min_u64(free, UINT32_MAX);
        if (offer_at(p, i)->section->reserved == 0) c->reserved = c->nodes;
    }
}

/* ---- the op ---- */

static void begin_prices(const struct web_provider *p, struct web_op *op, int64_t wall_us,
                         struct web_step *ret)
{
    op->stage = 0;
    if (!ask_spot(p, op, STR(""), wall_us, ret)) ask_type(p, op, 0, wall_us, ret);
}

/* Takes a page of reservations. Without the right to them, or with ids that nobody has, prices go on without. */
static void take_reservations(const struct web_provider *p, struct web_op *op,
                              const struct web_reply *r, int64_t wall_us, struct web_step *ret)
{
    CLEANUP(arena_fini) struct arena tree = { 0 };
    struct xml_node *root;
    if (r->status != 200) {
        ec2_refuse(p, op, r, ret);
        bool passes = ret->class == OFFER_TRANSIENT || ret->class == OFFER_THROTTLE;
        if (!passes && !ret->login_refused) begin_prices(p, op, wall_us, ret);
        return;
    }
    if (!ec2_read(op, r, &tree, &root, ret)) return;
    for (uint32_t i = 0; i < op->count; i++) {
        const struct web_offer_section *o = offer_at(p, i)->section;
        struct cloud_price *c = &op->price[i];
        if (o->capacity_reservation.len == 0 || c->reserved_known) continue;
        c->reserved_known = true; /* one that is not active any more holds none */
        c->reserved = (uint32_t)o->reserved;
    }
    const struct xml_node *item = xml_at(root, "capacityReservationSet.item");
    for (; item; item = xml_next(item))
        take_reservation(p, op, item);
    struct str next = xml_text(root, "nextToken");
    if (next.len == 0 || !ask_reservations(p, op, next, wall_us, ret))
        begin_prices(p, op, wall_us, ret);
}

static void spot_page(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                      int64_t wall_us, struct web_step *ret)
{
    CLEANUP(arena_fini) struct arena tree = { 0 };
    struct xml_node *root;
    if (!ec2_read(op, r, &tree, &root, ret)) return;
    if (!str_eq(root->name, STR("DescribeSpotPriceHistoryResponse"))) {
        web_refuse(ret, OFFER_TRANSIENT, "prices of ec2: the reply is no history of prices");
        return;
    }
    const struct xml_node *item = xml_at(root, "spotPriceHistorySet.item");
    for (; item; item = xml_next(item))
        take_spot(p, op, item);
    struct str next = xml_text(root, "nextToken");
    if (next.len > 0)
        ask_spot(p, op, next, wall_us, ret);
    else
        ask_type(p, op, 0, wall_us, ret);
}

void ec2_prices(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                int64_t wall_us, struct web_step *ret)
{
    if (!r) {
        begin(p, op);
        if (!ask_reservations(p, op, STR(""), wall_us, ret)) begin_prices(p, op, wall_us, ret);
        return;
    }
    if (op->stage == EC2_RESERVED) {
        take_reservations(p, op, r, wall_us, ret);
        return;
    }
    if (op->stage >= EC2_IMAGE) {
        ec2_fleet_sweep(p, op, r, wall_us, ret);
        return;
    }
    if (r->status != 200) {
        ec2_refuse(p, op, r, ret);
        bool no_right = ret->class == OFFER_AUTH && !ret->login_refused;
        if (op->stage > 0 && no_right) ec2_fleet_sweep(p, op, NULL, wall_us, ret);
        return;
    }
    if (op->stage == 0) {
        spot_page(p, op, r, wall_us, ret);
        return;
    }
    struct str list;
    if (json_path(r->body, "PriceList", &list) < 0) {
        web_refuse(ret, OFFER_TRANSIENT, "prices of ec2: the reply has no PriceList");
        return;
    }
    take_type(p, op, r);
    ask_type(p, op, op->stage, wall_us, ret);
}
