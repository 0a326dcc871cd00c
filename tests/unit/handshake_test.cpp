#include "server/session/handshake.h"

#include <gtest/gtest.h>

#include <string>

namespace headrace::server::session {
namespace {

using namespace std::string_literals;

std::string greeting(char major = 3) {
  std::string out = "\xff"s + std::string(8, '\0') + "\x7f" + major + '\0' + "NULL";
  out.resize(64);
  return out;
}

std::string property(const std::string& name, const std::string& value) {
  return std::string(1, static_cast<char>(name.size())) + name + "\0\0\0"s + static_cast<char>(value.size()) +
         value;
}

std::string ready(const std::string& properties) {
  const std::string body = "\5READY" + properties;
  return "\4"s + static_cast<char>(body.size()) + body;
}

const std::string kDealer = property("Socket-Type", "DEALER");

TEST(Handshake, IsAnonymousWithoutAnIdentityOrWithAnEmptyOne) {
  for (const std::string& more : {""s, property("Identity", ""), property("X-Other", "value")})
    EXPECT_EQ(classify_handshake(greeting() + ready(kDealer + more)), Handshake::kAnonymous);
  EXPECT_EQ(classify_handshake(greeting() + ready(kDealer) + "\0\2{}"s), Handshake::kAnonymous);
}

TEST(Handshake, IsUnfinishedUntilItsLastByte) {
  const std::string whole = greeting() + ready(kDealer + property("Identity", ""));
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_EQ(classify_handshake(whole.substr(0, size)), Handshake::kUnfinished) << size;
  const std::string longest = greeting() + ready(property("X", std::string(243, 'v')));
  ASSERT_EQ(longest.size(), kLongestHandshake);
  EXPECT_EQ(classify_handshake(longest), Handshake::kAnonymous);
}

TEST(Handshake, WithAnIdentityIsRefusedWhateverThePropertysCase) {
  for (const char* name : {"Identity", "identity", "IDENTITY"})
    EXPECT_EQ(classify_handshake(greeting() + ready(kDealer + property(name, "\0\1\2\3\4"s))),
              Handshake::kRefused);
}

TEST(Handshake, IsRefusedWithAnOldOrMissingVersion) {
  EXPECT_EQ(classify_handshake("\1\0"s), Handshake::kRefused);  // ZMTP 1 sends its identity first
  EXPECT_EQ(classify_handshake("\xff\0\0\0\0\0\0\0\1\0"s), Handshake::kRefused);  // ZMTP 1, a long identity
  for (const char major : {'\0', '\1', '\2'})
    EXPECT_EQ(classify_handshake(greeting(major).substr(0, 11)), Handshake::kRefused);
}

TEST(Handshake, IsRefusedIfMalformed) {
  EXPECT_EQ(classify_handshake(greeting() + "\0\5hello"s),
            Handshake::kRefused);                                              // a message instead of READY
  EXPECT_EQ(classify_handshake(greeting() + "\6\0\0"s), Handshake::kRefused);  // a long command
  EXPECT_EQ(classify_handshake(greeting() + "\4\6\5HELLO"s), Handshake::kRefused);
  EXPECT_EQ(classify_handshake(greeting() + ready("\x40Identity")), Handshake::kRefused);
  EXPECT_EQ(classify_handshake(greeting() + ready("\1X\xff\xff\xff\xffv")), Handshake::kRefused);
}

}  // namespace
}  // namespace headrace::server::session
