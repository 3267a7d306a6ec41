// Runs a kernel of native.cu without a GPU: blocks one after the other, the threads of a block as threads. Compiled by
// test_native.py with NATIVE, the path of native.cu, and KERNEL, an instance. Copies into shared memory are done at once.

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
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

inline int __syncthreads_or(int value) {
    static int any[2];  // of this call, and of the next one
    static thread_local int call = 0;
    int &mine = any[call++ % 2];
    if (value) __atomic_store_n(&mine, 1, __ATOMIC_RELAXED);
    __syncthreads();
    const int result = mine;
    __syncthreads();
    if (threadIdx.x == 0) mine = 0;  // before the next call but one
    return result;
}

inline int __shfl_xor_sync(unsigned, int value, int other) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    lanes[warp][lane] = value;
    __syncwarp();
    const int result = lanes[warp][lane ^ other];
    __syncwarp();
    return result;
}

inline unsigned long long atomicAdd(unsigned long long *to, unsigned long long value) {
    return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
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

// A launch, given pointers to the arguments as the driver takes them.
template <class... Types, size_t... I>
void launch(void (*kernel)(Types...), Place grid, int threads, void **arguments, std::index_sequence<I...>) {
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
                        kernel(*(Types *)arguments[I]...);
                        block_barrier->arrive_and_drop();  // a thread that is done waits for nobody
                        warp_barriers[t / 32]->arrive_and_drop();
                    });
                for (std::thread &thread : running) thread.join();
            }
}

template <class... Types> void launch(void (*kernel)(Types...), Place grid, int threads, void **arguments) {
    launch(kernel, grid, threads, arguments, std::index_sequence_for<Types...>());
}

extern "C" void run(int x, int y, int z, int threads, void **arguments) {
    launch(KERNEL, {x, y, z}, threads, arguments);
}
