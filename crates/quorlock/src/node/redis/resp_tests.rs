//! The wire format. Apart from it, since a benchmark takes that file in by itself.

use proptest::prelude::*;

use super::resp::*;

fn whole(bytes: &[u8]) -> Value<'_> {
    let (value, used) = parse(bytes).unwrap().unwrap();
    assert_eq!(used, bytes.len());
    value
}

#[test]
fn reads_every_kind_of_reply() {
    assert_eq!(whole(b"+OK\r\n"), Value::Simple(b"OK"));
    assert_eq!(whole(b"-ERR no\r\n"), Value::Error(b"ERR no"));
    assert_eq!(whole(b":-42\r\n"), Value::Int(-42));
    assert_eq!(whole(b"_\r\n"), Value::Null);
    assert_eq!(whole(b"$-1\r\n"), Value::Null);
    assert_eq!(whole(b"*-1\r\n"), Value::Null);
    assert_eq!(whole(b"#t\r\n"), Value::Int(1));
    assert_eq!(whole(b",1.5\r\n"), Value::Simple(b"1.5"));
    assert_eq!(whole(b"$5\r\na\r\nbc\r\n"), Value::Bulk(b"a\r\nbc"));
    assert_eq!(whole(b"!5\r\nERR x\r\n"), Value::Error(b"ERR x"));
    assert_eq!(whole(b"=7\r\ntxt:abc\r\n"), Value::Bulk(b"abc"));
    assert_eq!(
        whole(b"*2\r\n:1\r\n~0\r\n"),
        Value::Array(vec![Value::Int(1), Value::Array(vec![])])
    );
    assert_eq!(whole(b"%1\r\n+a\r\n:1\r\n"), Value::Map(vec![Value::Simple(b"a"), Value::Int(1)]));
    assert_eq!(whole(b">1\r\n+x\r\n"), Value::Push(vec![Value::Simple(b"x")]));
    assert_eq!(whole(b">-1\r\n"), Value::Push(vec![]));
    assert_eq!(whole(b"|1\r\n+k\r\n+v\r\n:7\r\n"), Value::Int(7));
}

#[test]
fn refuses_what_is_no_reply() {
    for bytes in [
        &b"HTTP/1.1 400 Bad Request\r\n"[..],
        b"\r\n",
        b"+no carriage return\n",
        b":x\r\n",
        b"$-2\r\n",
        b"$1\r\nabc\r\n",
        b"#x\r\n",
        b"=2\r\nab\r\n",
    ] {
        assert_eq!(parse(bytes), Err(Refused::Malformed), "{}", bytes.escape_ascii());
    }
}

/// By what the header says: nothing behind it has been read.
#[test]
fn refuses_what_is_going_to_be_too_long() {
    let deep = "*1\r\n".repeat(20);
    let attributes = "|0\r\n".repeat(20);
    for bytes in [
        &b"$262145\r\n"[..],
        b"!99999999999\r\n",
        b"=9223372036854775807\r\n",
        b"*4097\r\n",
        b"%2049\r\n",
        b"%9223372036854775807\r\n",
        b"~1000000000\r\n",
        b"|4097\r\n",
        b">1000000000\r\n",
        b"*2\r\n:1\r\n$1000000\r\n",
        deep.as_bytes(),
        attributes.as_bytes(),
    ] {
        assert_eq!(parse(bytes), Err(Refused::TooLong), "{}", bytes.escape_ascii());
    }
    // Values count wherever they stand.
    let many = [&b"*4\r\n"[..], b"*2000\r\n", &b":1\r\n".repeat(2_000), b"*2093\r\n"];
    assert_eq!(parse(&many.concat()), Err(Refused::TooLong));
}

#[test]
fn writes_commands_as_redis_reads_them() {
    let mut out = Vec::new();
    Command::new(&mut out, 4).arg(b"SET").arg2(b"pre:", b"name").arg(b"").number(12_345);
    assert_eq!(out, b"*4\r\n$3\r\nSET\r\n$8\r\npre:name\r\n$0\r\n\r\n$5\r\n12345\r\n");
    let mut out = Vec::new();
    Command::new(&mut out, 1).number(u64::MAX);
    assert_eq!(out, b"*1\r\n$20\r\n18446744073709551615\r\n");
    let mut out = Vec::new();
    Command::new(&mut out, 12).written(&part(b"GET")).arg(&[b'x'; 123]);
    assert_eq!(out, [b"*12\r\n$3\r\nGET\r\n$123\r\n", &[b'x'; 123][..], b"\r\n"].concat());
}

proptest! {
    #[test]
    fn numbers_are_written_as_everybody_writes_them(number: u64, shift in 0..64_u32) {
        let number = number >> shift;
        let digits = number.to_string();
        let mut out = Vec::new();
        Command::new(&mut out, 1).number(number);
        prop_assert_eq!(out, format!("*1\r\n${}\r\n{digits}\r\n", digits.len()).into_bytes());
    }

    #[test]
    fn no_bytes_make_it_panic_and_no_prefix_is_taken_for_a_reply(
        bytes in prop::collection::vec(prop::sample::select(b"+-:$*%>|_#=!~0123\r\nab".to_vec()), 0..40)
    ) {
        if let Ok(Some((value, used))) = parse(&bytes) {
            prop_assert_eq!(parse(&bytes[..used]), Ok(Some((value, used))));
            for end in 0..used {
                prop_assert!(!matches!(parse(&bytes[..end]), Ok(Some(_))), "{} of {}", end, used);
            }
        }
    }
}
