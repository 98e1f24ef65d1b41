/* periods.h - how often routers, agents and the controller speak, unless the configuration says
 * otherwise: the simulator keeps the same periods.
 *
 * Layer: fleet
 */
#pragma once

#define SYNC_PERIOD_US \
    500000 /* a router to the controller; at once when it begins to hold requests */
#define SYNC_PERIOD_TEXT "500ms"
#define REPORT_PERIOD_US 1000000 /* an agent to the controller */
#define REPORT_PERIOD_TEXT "1s"
#define TICK_PERIOD_US 1000000 /* the controller decides */
#define TICK_PERIOD_TEXT "1s"
#define URGENT_TICK_US 20000 /* several urgent events within this time make one tick */
