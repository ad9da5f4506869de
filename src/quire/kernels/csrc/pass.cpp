#include "pass.h"

#include <chrono>

void quire_run(const QuireCall* calls, int64_t num_calls, double* seconds) {
    using Clock = std::chrono::steady_clock;
    for (int64_t i = 0; i < num_calls; ++i) {
        if (!seconds) {
            calls[i].function(calls[i].arguments);
            continue;
        }
        const Clock::time_point start = Clock::now();
        calls[i].function(calls[i].arguments);
        seconds[i] += std::chrono::duration<double>(Clock::now() - start).count();
    }
}
