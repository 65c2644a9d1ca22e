//! Replies and messages in pieces of any size.

use proptest::prelude::*;

use super::framing::*;
use super::resp::{MAX_REPLY, Refused, Value};

/// What came of some bytes that arrived in pieces of these sizes, again and again: all values, as text,
/// and why it ended. Like a connection, it keeps what was not used.
fn framed(bytes: &[u8], pieces: &[usize]) -> (Vec<String>, Result<(), Refused>) {
    let (mut framing, mut kept, mut values) = (Framing::default(), Vec::new(), Vec::new());
    let (mut rest, mut sizes) = (bytes, pieces.iter().cycle());
    while !rest.is_empty() {
        let size = sizes.next().map_or(rest.len(), |size| (*size).clamp(1, rest.len()));
        kept.extend_from_slice(&rest[..size]);
        rest = &rest[size..];
        let mut unused = kept.as_slice();
        loop {
            match framing.next(&mut unused) {
                Ok(Some(value)) => values.push(format!("{value:?}")),
                Ok(None) => break,
                Err(refused) => return (values, Err(refused)),
            }
        }
        let used = kept.len() - unused.len();
        kept.drain(..used);
        assert!(kept.len() < MAX_REPLY, "{} bytes are kept", kept.len());
    }
    (values, Ok(()))
}

fn push(length: usize) -> Vec<u8> {
    let header = format!(">2\r\n$7\r\nmessage\r\n${length}\r\n");
    [header.as_bytes(), &vec![b'x'; length], b"\r\n"].concat()
}

#[test]
fn long_messages_are_passed_over_in_pieces_of_any_size() {
    let long = [
        push(16 * 1_024),
        push(1 << 20),
        [&b">5000\r\n"[..], &b"*1\r\n_\r\n".repeat(5_000)].concat(),
        [&b">1\r\n"[..], &b"*1\r\n".repeat(50), b"$-1\r\n"].concat(),
        [&b">1\r\n%1\r\n+"[..], &[b'k'; 20_000], b"\r\n|1\r\n:1\r\n:2\r\n(3\r\n"].concat(),
        b">1\r\n:x\r\n".to_vec(),
        b">1\r\n=3\r\nabc\r\n".to_vec(),
    ];
    for long in &long {
        let bytes = [b":1\r\n", &long[..], b":2\r\n", &long[..], &push(3), b":3\r\n"].concat();
        let last = format!("{:?}", Value::Push(vec![Value::Bulk(b"message"), Value::Bulk(b"xxx")]));
        let values = ["Int(1)", "Int(2)", &last, "Int(3)"].map(str::to_owned).to_vec();
        for pieces in [&[][..], &[1], &[2, 3], &[1_000], &[16_383, 2], &[65_536]] {
            assert_eq!(framed(&bytes, pieces), (values.clone(), Ok(())), "{pieces:?}");
        }
    }
}

#[test]
fn a_reply_is_refused_as_soon_as_it_is_known_to_be_too_long() {
    let line = [&b"+"[..], &vec![b'x'; MAX_REPLY], b"\r\n"].concat();
    let strings =
        [&b"*5\r\n"[..], &[&b"$60000\r\n"[..], &[b'x'; 60_000], b"\r\n"].concat().repeat(5)];
    for bytes in [line, strings.concat(), b"$262145\r\n".to_vec(), b"*1000000000\r\n".to_vec()] {
        for pieces in [&[][..], &[1_000], &[65_536, 1]] {
            assert_eq!(framed(&bytes, pieces), (vec![], Err(Refused::TooLong)));
        }
    }
    let longest = [&b"+"[..], &vec![b'x'; MAX_REPLY - 3], b"\r\n"].concat();
    assert_eq!(framed(&longest, &[1_000]).1, Ok(()));
    assert_eq!(framed(&longest, &[1_000]).0.len(), 1);
}

/// Something that a server may send: mostly well formed, some of it long.
fn sent() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
        prop::collection::vec(any::<u8>(), 0..50).prop_map(|text| {
            [format!("${}\r\n", text.len()).as_bytes(), &text, b"\r\n"].concat()
        }),
        prop::sample::select(vec![
            b"+OK\r\n".to_vec(),
            b"-ERR\r\n".to_vec(),
            b"_\r\n".to_vec(),
            b"$-1\r\n".to_vec(),
            b"#t\r\n".to_vec(),
            b",1.5\r\n".to_vec(),
            b"(12\r\n".to_vec(),
            b"!3\r\nERR\r\n".to_vec(),
            b"=7\r\ntxt:abc\r\n".to_vec(),
            b"*-1\r\n".to_vec(),
            b">-1\r\n".to_vec(),
            b":x\r\n".to_vec(),
        ]),
        (0..40_000_usize).prop_map(|length| {
            [format!("${length}\r\n").as_bytes(), &vec![b'z'; length], b"\r\n"].concat()
        }),
    ];
    let value = leaf.prop_recursive(4, 40, 5, |inner| {
        let kinds = prop::sample::select(b"*~>%|".to_vec());
        (kinds, prop::collection::vec(inner, 0..6)).prop_map(|(kind, mut items)| {
            let each = if b"%|".contains(&kind) { 2 } else { 1 };
            items.truncate(items.len() / each * each);
            let mut bytes = vec![kind];
            bytes.extend_from_slice(format!("{}\r\n", items.len() / each).as_bytes());
            bytes.extend(items.concat());
            if kind == b'|' {
                bytes.extend_from_slice(b"_\r\n");
            }
            bytes
        })
    });
    let raw = prop::sample::select(b"+-:$*%>|_#=!~(,0123\r\nab".to_vec());
    prop_oneof![
        6 => value,
        1 => prop::collection::vec(raw, 0..40),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// However the bytes are cut, the same values come of them; nothing panics, and little is kept.
    #[test]
    fn pieces_make_no_difference(
        parts in prop::collection::vec(sent(), 0..8),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        pieces in prop::collection::vec(1..5_000_usize, 1..6),
    ) {
        let mut bytes = parts.concat();
        for (place, byte) in changes {
            if !bytes.is_empty() {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
        }
        prop_assert_eq!(framed(&bytes, &pieces), framed(&bytes, &[]));
    }

    /// Replies between messages of any kind are all found.
    #[test]
    fn replies_between_messages_are_found(
        messages in prop::collection::vec(prop::collection::vec(sent_well(), 0..6), 0..8),
        pieces in prop::collection::vec(1..5_000_usize, 1..6),
    ) {
        let mut bytes = Vec::new();
        for (number, items) in messages.iter().enumerate() {
            bytes.extend_from_slice(format!(">{}\r\n", items.len()).as_bytes());
            bytes.extend(items.concat());
            bytes.extend_from_slice(format!(":{number}\r\n").as_bytes());
        }
        let (values, end) = framed(&bytes, &pieces);
        prop_assert_eq!(end, Ok(()));
        let replies: Vec<_> = values.into_iter().filter(|value| !value.starts_with("Push")).collect();
        let expected: Vec<_> = (0..messages.len()).map(|number| format!("Int({number})")).collect();
        prop_assert_eq!(replies, expected);
    }
}

/// A value whose end can be told.
fn sent_well() -> impl Strategy<Value = Vec<u8>> {
    let bulk =
        |length| [format!("${length}\r\n").as_bytes(), &vec![b'\r'; length], b"\r\n"].concat();
    prop_oneof![
        (0..100_usize).prop_map(bulk),
        (0..60_000_usize).prop_map(bulk),
        prop::sample::select(vec![b":x\r\n".to_vec(), b"=1\r\nx\r\n".to_vec(), b"#?\r\n".to_vec()]),
        (0..6_000_usize).prop_map(|count| {
            [format!("*{count}\r\n").as_bytes(), &b"_\r\n".repeat(count)].concat()
        }),
        (0..20_usize).prop_map(|depth| [&b"~1\r\n".repeat(depth)[..], b"$-1\r\n"].concat()),
    ]
}
