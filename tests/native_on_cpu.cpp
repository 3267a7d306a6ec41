// Runs the kernels of native.cu without a GPU: blocks one after the other, the threads of a block as threads.
// Compiled by test_native.py with NATIVE, the path of native.cu. Copies into shared memory are done at once.

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)

using std::min;

struct float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct Place {
    int x, y, z;
};

static thread_local Place threadIdx, blockIdx;
static Place gridDim;
static float4 memory[1 << 14];  // the shared memory of a block whose size the launch says
static std::unique_ptr<std::barrier<>> block_barrier;
static std::vector<std::unique_ptr<std::barrier<>>> warp_barriers;
static int lanes[64][32];  // what the lanes of each warp show each other

inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fmaf(a, b, c); }

template <class To, class From> To bits_of(From from) {
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

inline unsigned __float_as_uint(float value) { return bits_of<unsigned>(value); }
inline float __uint_as_float(unsigned value) { return bits_of<float>(value); }

inline void __syncthreads() { block_barrier->arrive_and_wait(); }
inline void __syncwarp() { warp_barriers[threadIdx.x / 32]->arrive_and_wait(); }

inline int __shfl_xor_sync(unsigned, int value, int other) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    lanes[warp][lane] = value;
    __syncwarp();
    const int result = lanes[warp][lane ^ other];
    __syncwarp();
    return result;
}

inline void atomicAdd(unsigned long long *to, unsigned long long value) {
    __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}

// A place in shared memory is its distance from `memory`, in bytes.
inline unsigned address(const void *shared) { return (unsigned)((const char *)shared - (const char *)memory); }

template <int BYTES = 4> inline void copy(unsigned to, const float *from, bool inside) {
    char *place = (char *)memory + (int)to;
    if (inside) std::memcpy(place, from, BYTES);
    else std::memset(place, 0, BYTES);
}

inline void copies_done() {}

#define NATIVE_ON_CPU
#include NATIVE

template <class Kernel, class... Arguments> void launch(Kernel kernel, Place grid, int threads, Arguments... arguments) {
    gridDim = grid;
    for (int z = 0; z < grid.z; z++)
        for (int y = 0; y < grid.y; y++)
            for (int x = 0; x < grid.x; x++) {
                block_barrier = std::make_unique<std::barrier<>>(threads);
                warp_barriers.clear();
                for (int warp = 0; warp < threads / 32; warp++)
                    warp_barriers.push_back(std::make_unique<std::barrier<>>(32));
                std::vector<std::thread> running;
                for (int t = 0; t < threads; t++)
                    running.emplace_back([=] {
                        threadIdx = {t, 0, 0}, blockIdx = {x, y, z};
                        kernel(arguments...);
                        // A thread that is done waits for nobody.
                        block_barrier->arrive_and_drop();
                        warp_barriers[t / 32]->arrive_and_drop();
                    });
                for (std::thread &thread : running) thread.join();
            }
}

static int blocks(int number, int size) { return (number + size - 1) / size; }

extern "C" {

void run_scores(const float *q, const float *w, const float *c, float *out, int B, int N, int D, int chunk) {
    launch(scores<32, 32, 4, 4, 16, 16, 1>, {blocks(N, 32), blocks(B, 32), blocks(D, chunk)}, 64, q, w, c, out, B, N, D,
           chunk);
}

void run_count_above(const float *q, const float *w, const float *c, const float *true_score, const long long *begin,
                     const long long *end, const int *members, const long long *own, unsigned long long *higher,
                     unsigned long long *equal, int B, int N, int D, int first) {
    launch(count_above<32, 32, 4, 4, 16, 16, 1>, {1, blocks(N, 32), blocks(B, 32)}, 64, q, w, c, true_score, begin, end,
           members, own, higher, equal, B, N, D, first);
}

void run_true_scores(const float *q, const float *w, const float *c, float *out, int B, int D) {
    launch(true_scores, {blocks(B, 32), 1, 1}, 32, q, w, c, out, B, D);
}

void run_gradients(const float *q, const float *w, const float *c, const float *g, float *dqw, float *dc, int B, int N,
                   int D, int chunk) {
    launch(gradients<1, 4, 2, 8, 1>, {blocks(D, 32), blocks(N, 8), blocks(B, chunk)}, 64, q, w, c, g, dqw, dc, B, N, D,
           chunk);
}

void run_add_parts(const float *from, float *to, int parts, int size, const float *from2, float *to2, int parts2,
                   int size2) {
    launch(add_parts, {blocks(size + size2, 256), 1, 1}, 256, from, to, parts, size, from2, to2, parts2, size2);
}
}
