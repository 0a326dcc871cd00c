#include "tests/fault/failing_allocation.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <unwind.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

// A sanitizer replaces malloc itself.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HEADRACE_FAILS_MALLOC 0
#else
#define HEADRACE_FAILS_MALLOC 1
#endif

namespace headrace::testing {
namespace {

struct Range {
  std::uintptr_t begin = 0, end = 0;
  [[nodiscard]] bool has(std::uintptr_t address) const { return address >= begin && address < end; }
};

/// A function of this program.
struct Symbol {
  Range code;
  std::string name;  ///< as the linker knows it
};

/// All of them, also those that dladdr(3) does not know because they are hidden.
std::vector<Symbol> read_symbols() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  const auto at = [&]<class T>(std::uint64_t offset, T out) {
    if (offset + sizeof out <= all.size()) std::memcpy(&out, all.data() + offset, sizeof out);
    return out;
  };
  std::uintptr_t base = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* out) {  // the program is the first one
        *static_cast<std::uintptr_t*>(out) = object->dlpi_addr;
        return 1;
      },
      &base);
  std::vector<Symbol> symbols;
  const auto header = at(0, Elf64_Ehdr{});
  const auto section = [&](std::uint64_t i) {
    return at(header.e_shoff + i * header.e_shentsize, Elf64_Shdr{});
  };
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr table = section(i);
    if (table.sh_type != SHT_SYMTAB) continue;
    const std::uint64_t names = section(table.sh_link).sh_offset;
    for (std::uint64_t offset = 0; offset < table.sh_size; offset += sizeof(Elf64_Sym)) {
      const auto symbol = at(table.sh_offset + offset, Elf64_Sym{});
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_size == 0) continue;
      const std::uintptr_t begin = base + symbol.st_value;
      symbols.push_back({{begin, begin + symbol.st_size}, all.c_str() + names + symbol.st_name});
    }
  }
  return symbols;
}

const std::vector<Symbol>& symbols() {
  static const std::vector<Symbol> all = read_symbols();
  return all;
}

/// Code that is looked up by its address.
class Code {
 public:
  /// The ranges of the loaded objects whose names contain one of these parts; "" is the program.
  static Code of_objects(std::initializer_list<std::string_view> parts) {
    Code code;
    auto search = std::pair(&code, parts);
    ::dl_iterate_phdr(
        [](dl_phdr_info* object, std::size_t, void* hint) {
          const auto& [self, wanted] = *static_cast<decltype(search)*>(hint);
          const std::string_view name(object->dlpi_name);
          const bool found = std::any_of(wanted.begin(), wanted.end(), [&](std::string_view part) {
            return part.empty() ? name.empty() : name.find(part) != std::string_view::npos;
          });
          for (int i = 0; found && i < object->dlpi_phnum; ++i) {
            const auto& header = object->dlpi_phdr[i];
            if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0) continue;
            const std::uintptr_t begin = object->dlpi_addr + header.p_vaddr;
            self->ranges_.push_back({begin, begin + header.p_memsz});
          }
          return 0;
        },
        &search);
    return code;
  }
  /// Adds the program's functions whose names have this part.
  Code with(std::string_view part) && {
    for (const Symbol& symbol : symbols())
      if (symbol.name.find(part) != std::string::npos) ranges_.push_back(symbol.code);
    return std::move(*this);
  }
  /// Adds a function that a library exports.
  Code with_exported(const char* name) && {
    Dl_info object{};
    void* symbol = nullptr;
    void* const at = ::dlsym(RTLD_DEFAULT, name);
    if (at != nullptr && ::dladdr1(at, &object, &symbol, RTLD_DL_SYMENT) != 0)
      ranges_.push_back(
          {reinterpret_cast<std::uintptr_t>(at),
           reinterpret_cast<std::uintptr_t>(at) + static_cast<const ElfW(Sym)*>(symbol)->st_size});
    return std::move(*this);
  }
  [[nodiscard]] bool has(std::uintptr_t address) const {
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [&](const Range& range) { return range.has(address); });
  }

 private:
  std::vector<Range> ranges_;
};

const Code& spared() {
  static const Code code =
      Code::of_objects({"libzmq", "libcivetweb", "libprometheus", "libgtest", "libgmock"})
          .with("json_value7destroy")
          .with_exported("_ZNSt10filesystem7__cxx114pathdVERKS1_");
  return code;
}
const Code& callers_of_malloc() {
  static const Code code = Code::of_objects({"", "libjpeg", "libturbojpeg", "libspng", "liblmdb"});
  return code;
}

constexpr std::size_t kDepth = 64;

std::atomic<bool> g_armed{false}, g_failed{false};
std::atomic<std::int64_t> g_left{0};
Threads g_threads = Threads::kThisThread;
pthread_t g_owner{};
std::array<std::uintptr_t, kDepth> g_stack;
std::size_t g_depth = 0;
thread_local bool t_walking = false, t_marked = false;

bool counts() {
  if (!g_armed.load(std::memory_order_acquire) || t_walking) return false;
  if (g_threads == Threads::kAllThreads) return true;
  if (g_threads == Threads::kMarkedThread) return t_marked;
  return (::pthread_equal(::pthread_self(), g_owner) != 0) == (g_threads == Threads::kThisThread);
}

/// Walks the stack of the n-th allocation only: the others cost nothing but their count.
bool fails_here() {
  if (g_left.fetch_sub(1, std::memory_order_relaxed) != 0) return false;
  t_walking = true;
  g_depth = 0;
  bool may_fail = true;
  ::_Unwind_Backtrace(
      [](_Unwind_Context* frame, void* hint) {
        const std::uintptr_t address = ::_Unwind_GetIP(frame);
        if (g_depth < kDepth) g_stack[g_depth++] = address;
        if (!spared().has(address)) return _URC_NO_REASON;
        *static_cast<bool*>(hint) = false;
        return _URC_END_OF_STACK;
      },
      &may_fail);
  t_walking = false;
  if (may_fail) g_failed.store(true, std::memory_order_release);
  return may_fail;
}

[[maybe_unused]] bool malloc_fails(void* caller) {
  return counts() && callers_of_malloc().has(reinterpret_cast<std::uintptr_t>(caller)) && fails_here();
}

}  // namespace

namespace {
std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> plain(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                     std::free);
  return plain ? plain.get() : name;
}
}  // namespace

FailingAllocation::FailingAllocation(Threads threads, std::uint64_t n) {
  (void)spared();
  (void)callers_of_malloc();
  g_threads = threads;
  g_owner = ::pthread_self();
  g_failed = false;
  g_depth = 0;
  g_left = static_cast<std::int64_t>(n);
  g_armed.store(true, std::memory_order_release);
}

FailingAllocation::~FailingAllocation() {
  g_armed = false;
}

void FailingAllocation::mark_this_thread() {
  t_marked = true;
}

bool FailingAllocation::reached() const {
  return g_left.load() < 0;
}

std::uint64_t FailingAllocation::left() const {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(g_left.load(), 0));
}

bool FailingAllocation::failed() const {
  return g_failed.load();
}

std::string FailingAllocation::stack() {
  const bool armed = g_armed.exchange(false);
  std::string text;
  for (std::size_t i = 0; i < g_depth; ++i) {
    const std::uintptr_t call = g_stack[i] - 1;  // a stack has the addresses after the calls
    Dl_info object{};
    if (::dladdr(reinterpret_cast<void*>(call), &object) == 0) continue;
    const auto own = std::find_if(symbols().begin(), symbols().end(),
                                  [&](const Symbol& symbol) { return symbol.code.has(call); });
    text += "\n  " + (own != symbols().end()        ? demangled(own->name.c_str())
                      : object.dli_sname != nullptr ? demangled(object.dli_sname)
                                                    : std::string(object.dli_fname));
  }
  g_armed = armed;
  return text;
}

}  // namespace headrace::testing

// NOLINTBEGIN(bugprone-reserved-identifier, cert-dcl37-c, cert-dcl51-cpp, readability-identifier-naming,
// cppcoreguidelines-no-malloc): glibc's names
#if HEADRACE_FAILS_MALLOC
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);

// Visible, so that shared libraries use them, too.
[[gnu::visibility("default")]] void* malloc(std::size_t size) {
  return headrace::testing::malloc_fails(__builtin_return_address(0)) ? nullptr : __libc_malloc(size);
}
[[gnu::visibility("default")]] void* calloc(std::size_t count, std::size_t size) {
  return headrace::testing::malloc_fails(__builtin_return_address(0)) ? nullptr : __libc_calloc(count, size);
}
[[gnu::visibility("default")]] void* realloc(void* memory, std::size_t size) {
  return headrace::testing::malloc_fails(__builtin_return_address(0)) ? nullptr
                                                                      : __libc_realloc(memory, size);
}
}
#endif

namespace headrace::testing {
void* allocate(std::size_t size, std::size_t alignment) {
  if (counts() && fails_here()) throw std::bad_alloc();
#if HEADRACE_FAILS_MALLOC
  if (alignment <= alignof(std::max_align_t)) {
    if (void* const memory = __libc_malloc(size)) return memory;  // malloc() would count it twice
    throw std::bad_alloc();
  }
#endif
  void* const memory = alignment <= alignof(std::max_align_t)
                           ? std::malloc(size)
                           : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace headrace::testing
// NOLINTEND(bugprone-reserved-identifier, cert-dcl37-c, cert-dcl51-cpp, readability-identifier-naming,
// cppcoreguidelines-no-malloc)
