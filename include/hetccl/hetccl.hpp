// hetccl for C++17: ownership, exceptions and typed collectives over the C API. Header-only.
//
// Every wrapper owns one handle, can be moved and not copied, and frees in its destructor, which
// never throws. A failure of the C API is thrown as hetccl::Error in the caller's own code; nothing
// is thrown through the library. Counts, in place and threads: as in hetccl.h.
#ifndef HETCCL_HETCCL_HPP_
#define HETCCL_HETCCL_HPP_

#include <hetccl/hetccl.h>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace hetccl {

class Error : public std::runtime_error {
 public:
  Error(hetcclResult_t code, const std::string& what) : std::runtime_error(what), code_(code) {}
  hetcclResult_t code() const noexcept { return code_; }

 private:
  hetcclResult_t code_;
};

// Throws what went wrong, in the library's own words.
inline void check(hetcclResult_t result, hetcclComm_t comm = nullptr) {
  if (result == hetcclSuccess) return;
  std::string cause = hetcclGetLastError(comm);
  if (cause.empty() && comm != nullptr) cause = hetcclGetLastError(nullptr);
  std::string text = hetcclGetErrorString(result);
  throw Error(result, cause.empty() ? text : text + ": " + cause);
}

namespace detail {

template <typename T, typename = void>
struct DataTypeOf;
template <hetcclDataType_t kValue>
using Constant = std::integral_constant<hetcclDataType_t, kValue>;

constexpr hetcclDataType_t integer_type(std::size_t bytes, bool is_signed) {
  return bytes == 1   ? (is_signed ? hetcclInt8 : hetcclUint8)
         : bytes == 2 ? (is_signed ? hetcclInt16 : hetcclUint16)
         : bytes == 4 ? (is_signed ? hetcclInt32 : hetcclUint32)
                      : (is_signed ? hetcclInt64 : hetcclUint64);
}

template <typename T>
struct DataTypeOf<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>>
    : Constant<integer_type(sizeof(T), std::is_signed_v<T>)> {
  static_assert(sizeof(T) <= 8, "no data type for integers of this width");
};
template <>
struct DataTypeOf<bool> : Constant<hetcclBool> {
  static_assert(sizeof(bool) == 1, "hetcclBool is one byte");
};
template <>
struct DataTypeOf<float> : Constant<hetcclFloat32> {};
template <>
struct DataTypeOf<double> : Constant<hetcclFloat64> {};
template <>
struct DataTypeOf<std::complex<float>> : Constant<hetcclComplex64> {};
template <>
struct DataTypeOf<std::complex<double>> : Constant<hetcclComplex128> {};
template <>
struct DataTypeOf<std::byte> : Constant<hetcclByte> {};

}  // namespace detail

// The data type that holds a T. Types without one do not compile.
template <typename T>
inline constexpr hetcclDataType_t data_type = detail::DataTypeOf<std::remove_cv_t<T>>::value;

// A stream of the host: orders the calls that are given it and runs them in the background.
class Stream {
 public:
  Stream() { check(hetcclStreamCreate(&handle_)); }
  Stream(Stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Stream() {
    if (handle_ != nullptr) (void)hetcclStreamDestroy(handle_);
  }

  hetcclStream_t get() const noexcept { return handle_; }
  operator hetcclStream_t() const noexcept { return handle_; }

  // Waits for all calls given to the stream; throws the first error among them.
  void synchronize() const { check(hetcclStreamSynchronize(handle_)); }
  // False while a call is unfinished.
  bool done() const {
    hetcclResult_t result = hetcclStreamQuery(handle_);
    if (result == hetcclInProgress) return false;
    check(result);
    return true;
  }

 private:
  hetcclStream_t handle_ = nullptr;
};

// Zeroed memory for `size` elements that collectives read in place on the whole node.
template <typename T>
class Memory {
  static_assert(std::is_trivially_copyable_v<T>, "collectives move bytes");

 public:
  explicit Memory(std::size_t size, hetcclMemoryKind_t kind = hetcclMemoryHost) : size_(size) {
    if (size > SIZE_MAX / sizeof(T)) throw Error(hetcclInvalidArgument, "size overflows");
    void* memory = nullptr;
    check(hetcclMemAlloc(&memory, size * sizeof(T), kind));
    data_.reset(static_cast<T*>(memory));
  }

  T* data() const noexcept { return data_.get(); }
  std::size_t size() const noexcept { return size_; }
  T& operator[](std::size_t i) const noexcept { return data_.get()[i]; }
  T* begin() const noexcept { return data(); }
  T* end() const noexcept { return data() + size_; }

 private:
  struct Free {
    void operator()(T* memory) const noexcept { (void)hetcclMemFree(memory); }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t size_;
};

class Communicator {
 public:
  Communicator() noexcept = default;  // none: `if (comm)` is false
  Communicator(Communicator&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Communicator& operator=(Communicator&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Communicator() { (void)hetcclCommDestroy(handle_); }

  // Takes ownership, as of what hetcclCommInitMPI made.
  static Communicator adopt(hetcclComm_t handle) noexcept { return Communicator(handle); }

  // `allgather(const void* mine, void* all, std::size_t bytes_each)` collects what every rank gives
  // in rank order; it reports failure by an exception, which comes out here, or, where it returns
  // an int, by a value other than 0.
  template <typename Allgather>
  static Communicator from_oob(int ranks, int rank, Allgather&& allgather,
                               const hetcclConfig_t* config = nullptr) {
    struct Context {
      std::remove_reference_t<Allgather>* call;
      std::exception_ptr thrown;
    } context{std::addressof(allgather), nullptr};
    auto exchange = [](const void* mine, void* all, std::size_t bytes_each, void* ctx) -> int {
      auto* self = static_cast<Context*>(ctx);
      try {
        if constexpr (std::is_void_v<decltype((*self->call)(mine, all, bytes_each))>) {
          (*self->call)(mine, all, bytes_each);
          return 0;
        } else {
          return static_cast<int>((*self->call)(mine, all, bytes_each));
        }
      } catch (...) {
        self->thrown = std::current_exception();
        return 1;
      }
    };
    hetcclComm_t handle = nullptr;
    hetcclResult_t result =
        hetcclCommInitOob(&handle, ranks, rank, exchange, std::addressof(context), config);
    Communicator comm(handle);
    if (context.thrown) std::rethrow_exception(context.thrown);
    check(result);
    return comm;
  }

  static hetcclUniqueId unique_id() {
    hetcclUniqueId id;
    check(hetcclGetUniqueId(&id));
    return id;
  }
  static Communicator from_unique_id(int ranks, const hetcclUniqueId& id, int rank,
                                     const hetcclConfig_t* config = nullptr) {
    hetcclComm_t handle = nullptr;
    check(hetcclCommInitRankConfig(&handle, ranks, id, rank, config));
    return Communicator(handle);
  }

  // A negative color takes part and gets a communicator that is none.
  Communicator split(std::int64_t color, std::int64_t key,
                     const hetcclConfig_t* config = nullptr) const {
    hetcclComm_t handle = nullptr;
    check(hetcclCommSplit(handle_, color, key, &handle, config), handle_);
    return Communicator(handle);
  }
  Communicator dup() const {
    hetcclComm_t handle = nullptr;
    check(hetcclCommDup(handle_, &handle), handle_);
    return Communicator(handle);
  }

  // Of those that are alive and not among `exclude`.
  Communicator shrink(const int* exclude = nullptr, int nexclude = 0,
                      const hetcclConfig_t* config = nullptr) const {
    hetcclComm_t handle = nullptr;
    check(hetcclCommShrink(handle_, exclude, nexclude, &handle, config));
    return Communicator(handle);
  }

  hetcclComm_t get() const noexcept { return handle_; }
  explicit operator bool() const noexcept { return handle_ != nullptr; }
  // Gives up ownership.
  hetcclComm_t release() noexcept { return std::exchange(handle_, nullptr); }

  int size() const { return ask(hetcclCommCount); }
  int rank() const { return ask(hetcclCommUserRank); }
  // hetcclSuccess while the communicator is sound, else the error that ended it.
  hetcclResult_t async_error() const {
    hetcclResult_t error = hetcclSuccess;
    check(hetcclCommGetAsyncError(handle_, &error), handle_);
    return error;
  }

  void finalize() const { check(hetcclCommFinalize(handle_), handle_); }
  // Like the destructor, but says what went wrong.
  void destroy() { check(hetcclCommDestroy(release())); }
  void abort() { check(hetcclCommAbort(release())); }

  template <typename T>
  void all_reduce(const T* send, T* recv, std::size_t count, hetcclRedOp_t op = hetcclSum,
                  hetcclStream_t stream = nullptr) const {
    run(hetcclAllReduce(send, recv, count, data_type<T>, op, handle_, stream));
  }
  template <typename T>
  void reduce(const T* send, T* recv, std::size_t count, hetcclRedOp_t op, int root,
              hetcclStream_t stream = nullptr) const {
    run(hetcclReduce(send, recv, count, data_type<T>, op, root, handle_, stream));
  }
  template <typename T>
  void reduce_scatter(const T* send, T* recv, std::size_t recvcount, hetcclRedOp_t op = hetcclSum,
                      hetcclStream_t stream = nullptr) const {
    run(hetcclReduceScatter(send, recv, recvcount, data_type<T>, op, handle_, stream));
  }
  template <typename T>
  void reduce_scatterv(const T* send, T* recv, const std::size_t* recvcounts,
                       hetcclRedOp_t op = hetcclSum, hetcclStream_t stream = nullptr) const {
    run(hetcclReduceScatterv(send, recv, recvcounts, data_type<T>, op, handle_, stream));
  }
  template <typename T>
  void broadcast(const T* send, T* recv, std::size_t count, int root,
                 hetcclStream_t stream = nullptr) const {
    run(hetcclBroadcast(send, recv, count, data_type<T>, root, handle_, stream));
  }
  template <typename T>
  void all_gather(const T* send, T* recv, std::size_t sendcount,
                  hetcclStream_t stream = nullptr) const {
    run(hetcclAllGather(send, recv, sendcount, data_type<T>, handle_, stream));
  }
  template <typename T>
  void all_gatherv(const T* send, std::size_t sendcount, T* recv, const std::size_t* recvcounts,
                   const std::size_t* recvdispls, hetcclStream_t stream = nullptr) const {
    run(hetcclAllGatherv(send, sendcount, recv, recvcounts, recvdispls, data_type<T>, handle_,
                         stream));
  }
  template <typename T>
  void all_to_all(const T* send, T* recv, std::size_t count,
                  hetcclStream_t stream = nullptr) const {
    run(hetcclAllToAll(send, recv, count, data_type<T>, handle_, stream));
  }
  template <typename T>
  void all_to_allv(const T* send, const std::size_t* sendcounts, const std::size_t* senddispls,
                   T* recv, const std::size_t* recvcounts, const std::size_t* recvdispls,
                   hetcclStream_t stream = nullptr) const {
    run(hetcclAllToAllv(send, sendcounts, senddispls, recv, recvcounts, recvdispls, data_type<T>,
                        handle_, stream));
  }
  // What only the root looks at may be nullptr elsewhere.
  template <typename T>
  void gather(const T* send, T* recv, std::size_t sendcount, int root,
              hetcclStream_t stream = nullptr) const {
    run(hetcclGather(send, recv, sendcount, data_type<T>, root, handle_, stream));
  }
  template <typename T>
  void gatherv(const T* send, std::size_t sendcount, T* recv, const std::size_t* recvcounts,
               const std::size_t* recvdispls, int root, hetcclStream_t stream = nullptr) const {
    run(hetcclGatherv(send, sendcount, recv, recvcounts, recvdispls, data_type<T>, root, handle_,
                      stream));
  }
  template <typename T>
  void scatter(const T* send, T* recv, std::size_t recvcount, int root,
               hetcclStream_t stream = nullptr) const {
    run(hetcclScatter(send, recv, recvcount, data_type<T>, root, handle_, stream));
  }
  template <typename T>
  void scatterv(const T* send, const std::size_t* sendcounts, const std::size_t* senddispls,
                T* recv, std::size_t recvcount, int root, hetcclStream_t stream = nullptr) const {
    run(hetcclScatterv(send, sendcounts, senddispls, recv, recvcount, data_type<T>, root, handle_,
                       stream));
  }
  template <typename T>
  void scan(const T* send, T* recv, std::size_t count, hetcclRedOp_t op = hetcclSum,
            hetcclStream_t stream = nullptr) const {
    run(hetcclScan(send, recv, count, data_type<T>, op, handle_, stream));
  }
  template <typename T>
  void exscan(const T* send, T* recv, std::size_t count, hetcclRedOp_t op = hetcclSum,
              hetcclStream_t stream = nullptr) const {
    run(hetcclExscan(send, recv, count, data_type<T>, op, handle_, stream));
  }
  void barrier(hetcclStream_t stream = nullptr) const { run(hetcclBarrier(handle_, stream)); }
  template <typename T>
  void send(const T* send, std::size_t count, int peer, hetcclStream_t stream = nullptr) const {
    run(hetcclSend(send, count, data_type<T>, peer, handle_, stream));
  }
  template <typename T>
  void recv(T* recv, std::size_t count, int peer, hetcclStream_t stream = nullptr) const {
    run(hetcclRecv(recv, count, data_type<T>, peer, handle_, stream));
  }

 private:
  explicit Communicator(hetcclComm_t handle) noexcept : handle_(handle) {}
  void run(hetcclResult_t result) const { check(result, handle_); }
  int ask(hetcclResult_t (*question)(hetcclComm_t, int*)) const {
    int answer = 0;
    check(question(handle_, &answer), handle_);
    return answer;
  }

  hetcclComm_t handle_ = nullptr;
};

// Memory that will be used again, as of hetcclCommRegister; it goes before its communicator does.
class Registration {
 public:
  Registration(const Communicator& comm, void* buffer, std::size_t bytes) : comm_(comm.get()) {
    check(hetcclCommRegister(comm_, buffer, bytes, &handle_));
  }
  Registration(Registration&& other) noexcept
      : comm_(other.comm_), handle_(std::exchange(other.handle_, nullptr)) {}
  Registration& operator=(Registration&& other) noexcept {
    std::swap(comm_, other.comm_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Registration() {
    if (handle_ != nullptr) (void)hetcclCommDeregister(comm_, handle_);
  }

 private:
  hetcclComm_t comm_;
  void* handle_ = nullptr;
};

// An operator made at run time; it goes before its communicator does, and no call that is
// unfinished may need it.
class Operator {
 public:
  // The sum of scalar * contribution.
  template <typename T>
  static Operator premulsum(const Communicator& comm, const T& scalar) {
    Operator made(comm);
    check(hetcclRedOpCreatePreMulSum(&made.op_, &scalar, data_type<T>, comm.get()), comm.get());
    return made;
  }
  // `function(const void* in, void* inout, std::size_t count, hetcclDataType_t)` as of
  // hetcclRedOpCreateUser; it must not throw.
  template <typename Function>
  static Operator user(const Communicator& comm, Function function, bool commutative) {
    Operator made(comm);
    auto held = std::make_shared<Function>(std::move(function));
    auto call = [](const void* in, void* inout, std::size_t count, hetcclDataType_t type,
                   void* ctx) { (*static_cast<Function*>(ctx))(in, inout, count, type); };
    check(hetcclRedOpCreateUser(&made.op_, call, held.get(), commutative ? 1 : 0, comm.get()),
          comm.get());
    made.function_ = std::move(held);
    return made;
  }
  Operator(Operator&& other) noexcept
      : op_(std::exchange(other.op_, hetcclSum)),
        comm_(std::exchange(other.comm_, nullptr)),
        function_(std::move(other.function_)) {}
  Operator& operator=(Operator&& other) noexcept {
    std::swap(op_, other.op_);
    std::swap(comm_, other.comm_);
    std::swap(function_, other.function_);
    return *this;
  }
  ~Operator() {
    if (comm_ != nullptr && op_ != hetcclSum) (void)hetcclRedOpDestroy(op_, comm_);
  }

  operator hetcclRedOp_t() const noexcept { return op_; }

 private:
  explicit Operator(const Communicator& comm) noexcept : comm_(comm.get()) {}

  hetcclRedOp_t op_ = hetcclSum;
  hetcclComm_t comm_;
  std::shared_ptr<void> function_;
};

// The calls that this thread makes while it exists are made together by end(). An exception on the
// way leaves the calls made so far to the destructor, which makes them: other ranks count on them.
class Group {
 public:
  Group() { check(hetcclGroupStart()); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    if (!ended_) (void)hetcclGroupEnd();
  }
  // Waits for the calls that have no stream; throws the first error among them.
  void end() {
    if (std::exchange(ended_, true)) return;
    check(hetcclGroupEnd());
  }

 private:
  bool ended_ = false;
};

}  // namespace hetccl

#endif  // HETCCL_HETCCL_HPP_
