// Parsing and writing of URLs, names of S3 objects, range headers and listings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): setenv is POSIX's

#include <string>

#include "server/remote/content_range.h"
#include "server/remote/s3.h"
#include "server/remote/url.h"

namespace headrace::server::remote {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Url, IsDistinguishedFromAPath) {
  EXPECT_TRUE(is_url("http://h/a"));
  EXPECT_TRUE(is_url("https://h/a"));
  EXPECT_TRUE(is_url("s3://b/k"));
  EXPECT_FALSE(is_url("/http://"));
  EXPECT_FALSE(is_url("gs://b/k"));
  EXPECT_FALSE(is_url("HTTP://h"));
}

TEST(Url, IsShownWithoutWhatMayBeSecret) {
  EXPECT_EQ(shown("https://me:secret@host:8443/a%20b/c.tar?sig=secret&x=1#part"),
            "https://host:8443/a b/c.tar?...");
  EXPECT_EQ(shown("https://host/train-{000..002}.tar"), "https://host/train-{000..002}.tar");
  EXPECT_EQ(shown("s3://bucket/a?b#c@d"), "s3://bucket/a?b#c@d");
  EXPECT_EQ(shown("https://me:secret@ho st/"), "(a URL that cannot be read)");
  EXPECT_EQ(shown("/data/x?y"), "/data/x?y");
}

TEST(Url, IsEncodedWhereItMustBe) {
  EXPECT_EQ(normalized("https://h/a b/\xc3\xbc%20.tar?q=1#f").value(), "https://h/a%20b/%c3%bc%20.tar?q=1");
  EXPECT_FALSE(normalized("https://"));
  EXPECT_EQ(encoded("a b/+\xc3\xbc~_-.%"), "a%20b/%2B%C3%BC~_-.%25");
  EXPECT_EQ(encoded("a/b", ""), "a%2Fb");
}

TEST(Url, OfAFileIsBelowItsRoots) {
  EXPECT_EQ(below("https://h/root/", "a b/1.jpg"), "https://h/root/a%20b/1.jpg");
  EXPECT_EQ(below("https://h/root?sig=x/y", "1.jpg"), "https://h/root/1.jpg?sig=x/y");
  EXPECT_EQ(below("s3://b/root", "a b?.jpg"), "s3://b/root/a b?.jpg");
  EXPECT_EQ(below("https://h/root", "https://g/1.jpg"), "https://g/1.jpg");
  EXPECT_EQ(parent("https://h/dir/list.csv?sig=a/b"), "https://h/dir");
  EXPECT_EQ(parent("s3://b/dir/list?.csv"), "s3://b/dir");
  EXPECT_EQ(name_of("https://h/dir/my%20list.csv?sig=a/b"), "my list.csv");
  EXPECT_EQ(name_of("s3://b/dir/list.csv"), "list.csv");
  EXPECT_EQ(name_of("/data/list.csv"), "list.csv");
}

TEST(ContentRange, IsReadOrIsNone) {
  const auto whole = parse_content_range("bytes 5-9/100");
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->first, 5U);
  EXPECT_EQ(whole->last, 9U);
  EXPECT_EQ(whole->total, 100U);
  EXPECT_FALSE(parse_content_range("bytes 5-9/*")->total);
  EXPECT_EQ(parse_content_range("bytes */7")->total, 7U);
  for (const char* text : {"", "bytes", "bytes 5-9", "bytes 9-5/10", "bytes 5-9/100x", "items 5-9/100",
                           "bytes -9/10", "bytes 99999999999999999999-9/1", "bytes 5-9/"})
    EXPECT_FALSE(parse_content_range(text)) << text;
}

class S3Names : public testing::Test {
 protected:
  S3Names() {
    for (const char* name : {"AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID",
                             "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"})
      ::unsetenv(name);
  }
  static S3 make(const S3Config& config) {
    auto s3 = S3::from_environment(config);
    EXPECT_TRUE(s3) << s3.error().message;
    return *s3;
  }
  static std::string refusal(const S3Config& config) {
    const auto s3 = S3::from_environment(config);
    return s3 ? "it was taken" : s3.error().message;
  }
};

TEST_F(S3Names, BucketsAreHostsAtAwsAndPathsElsewhere) {
  EXPECT_EQ(make({}).object({"b", "k 1"}).url, "https://b.s3.us-east-1.amazonaws.com/k%201");
  EXPECT_EQ(make({.region = "eu-west-1"}).object({"b.c", "k"}).url,
            "https://s3.eu-west-1.amazonaws.com/b.c/k");
  EXPECT_EQ(make({.region = "cn-north-1"}).object({"b", "k"}).url,
            "https://b.s3.cn-north-1.amazonaws.com.cn/k");
  const S3 own = make({.endpoint = "http://h:9000/"});
  EXPECT_EQ(own.object({"b", "a/k+"}).url, "http://h:9000/b/a/k%2B");
  EXPECT_EQ(own.listing({"b", "a/"}, false, "").url,
            "http://h:9000/b/?delimiter=%2F&list-type=2&prefix=a%2F");
  EXPECT_EQ(own.listing({"b", ""}, true, "t=/").url,
            "http://h:9000/b/?continuation-token=t%3D%2F&list-type=2&prefix=");
}

TEST_F(S3Names, EndpointRegionAndKeysComeFromTheEnvironment) {
  EXPECT_EQ(make({}).object({"b", "k"}).keys, nullptr);
  ::setenv("AWS_DEFAULT_REGION", "eu-north-1", 1);
  EXPECT_EQ(make({}).region(), "eu-north-1");
  ::setenv("AWS_REGION", "eu-west-3", 1);
  EXPECT_EQ(make({}).region(), "eu-west-3");
  EXPECT_EQ(make({.region = "own"}).region(), "own");
  ::setenv("AWS_ENDPOINT_URL", "http://e", 1);
  EXPECT_EQ(make({}).object({"b", "k"}).url, "http://e/b/k");
  ::setenv("AWS_ENDPOINT_URL", "e:9000", 1);
  EXPECT_THAT(refusal({}), HasSubstr("correct `s3.endpoint` or AWS_ENDPOINT_URL"));
  ::unsetenv("AWS_ENDPOINT_URL");
  ::setenv("AWS_ACCESS_KEY_ID", "id", 1);
  EXPECT_THAT(refusal({}), HasSubstr("AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not"));
  ::setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
  EXPECT_EQ(make({.anonymous = true}).object({"b", "k"}).keys, nullptr);
  const S3 s3 = make({});
  const Request request = s3.object({"b", "k"});
  ASSERT_NE(request.keys, nullptr);
  EXPECT_EQ(request.keys->id, "id");
  EXPECT_FALSE(request.follow);
}

TEST(S3Listing, GivesObjectsPrefixesAndTheNextPage) {
  const auto page = parse_listing(
      "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
      "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
      "<Contents><Key>a/1 &amp; 2.jpg</Key><Size>12</Size><ETag>&quot;x&quot;</ETag></Contents>"
      "<CommonPrefixes><Prefix>a/b/</Prefix></CommonPrefixes></ListBucketResult>",
      "a/");
  ASSERT_TRUE(page) << page.error();
  ASSERT_EQ(page->objects.size(), 1U);
  EXPECT_EQ(page->objects[0].key, "a/1 & 2.jpg");
  EXPECT_EQ(page->objects[0].bytes, 12U);
  EXPECT_EQ(page->objects[0].tag, "\"x\"");
  EXPECT_THAT(page->prefixes, ElementsAre("a/b/"));
  EXPECT_EQ(page->next, "t");
}

TEST(S3Listing, ThatMakesNoSenseIsRefused) {
  const auto refusal = [](const std::string& inner) {
    const auto page = parse_listing("<ListBucketResult>" + inner + "</ListBucketResult>", "a/");
    return page ? "it was taken" : page.error();
  };
  EXPECT_THAT(parse_listing("<html>hello", "").error(), HasSubstr("is not a reply of S3's ListObjectsV2"));
  EXPECT_THAT(parse_listing("", "").error(), HasSubstr("is not a reply"));
  EXPECT_THAT(refusal("<Contents><Key>a/b</Key><Size>-1</Size></Contents>"),
              HasSubstr("has no size for \"a/b\""));
  EXPECT_THAT(refusal("<Contents><Key>a/b</Key></Contents>"), HasSubstr("has no size for \"a/b\""));
  EXPECT_THAT(refusal("<Contents><Key>../b</Key><Size>1</Size></Contents>"), HasSubstr("names \"../b\""));
  EXPECT_THAT(refusal("<CommonPrefixes><Prefix>b/</Prefix></CommonPrefixes>"), HasSubstr("names \"b/\""));
  EXPECT_THAT(refusal("<IsTruncated>true</IsTruncated>"), HasSubstr("has no NextContinuationToken"));
  EXPECT_EQ(error_code_in("<Error><Code>NoSuchKey</Code><AWSAccessKeyId>x</AWSAccessKeyId></Error>"),
            "NoSuchKey");
  EXPECT_EQ(error_code_in("<Error><Code>a b</Code></Error>"), "");
  EXPECT_EQ(error_code_in("nothing"), "");
}

}  // namespace
}  // namespace headrace::server::remote
