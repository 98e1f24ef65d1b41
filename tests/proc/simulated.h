/* simulated.h - the load and the fleet that tests of `muster simulate` name most. */
#pragma once

#define GENERATED                                                                           \
    "gen:poisson,rate=20,prompt=lognormal(300,1),output=lognormal(60,2.3),n=400,tenants=5," \
    "turns=3,think=5,system=64,systems=2"

#define REFERENCE " --fleet 2xref8000 "
