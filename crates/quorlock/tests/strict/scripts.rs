//! The scripts in the corners, one server by itself.

use std::time::Duration;

use quorlock::node::TicketNumber::New;
use quorlock::node::{Answer, FailureKind, ParticipantId, Proposal};
use quorlock::{Dialect, RedisOptions};
use quorlock_testkit::conformance::{Probe, owner};
use quorlock_testkit::{RedisServer, Reply, test};

use crate::NAME;
use crate::world::{TTL, World, marker, server_us, text, waiters};

async fn is_wrong(probe: &Probe) -> bool {
    match probe.answer().await {
        Answer::Failed(why) => why.kind() == FailureKind::WrongType,
        _ => false,
    }
}

/// Whatever lies under the name of a lock and is none belongs to somebody else.
#[test]
async fn what_is_no_lock_is_named_so_by_every_verb_and_left_alone() {
    let world = World::new(Dialect::Strict).await;
    let server = &world.servers[0];
    let client = world.waiting_client(&server.url(), |_| {}).await;
    let node = client.node();
    let seconds = server_us(server) / 1_000_000;
    let long = format!("quorlock 0000000000000001 {} {seconds} 0 600000", "x".repeat(1_025));
    for content in [
        &["RPUSH", NAME, "an element"][..],
        &["SET", NAME, "some text"],
        &["SET", NAME, "quorlock is a word here"],
        &["SET", NAME, "ql:a-token-of-another-dialect"],
        &["SET", NAME, &long],
    ] {
        server.command(&["DEL", NAME]);
        server.command(content);
        let before = server.command(&["DUMP", NAME]);
        let (who, waiter) = (owner(NAME), client.waiter(NAME, 1));
        let proposal = Proposal { least: server_us(server), block: 16 };
        assert!(is_wrong(&who.acquire(node, TTL)).await, "{content:?}");
        assert!(is_wrong(&who.acquire_fenced(node, TTL, proposal)).await, "{content:?}");
        assert!(is_wrong(&who.extend(node, TTL)).await, "{content:?}");
        assert!(is_wrong(&who.release(node)).await, "{content:?}");
        let participant = ParticipantId::random(&*world.time());
        assert!(is_wrong(&who.take_part(node, participant, TTL)).await, "{content:?}");
        assert!(is_wrong(&who.leave(node, participant)).await, "{content:?}");
        assert!(is_wrong(&who.inspect(node)).await, "{content:?}");
        assert!(is_wrong(&who.take_from(who.holder(), node)).await, "{content:?}");
        assert!(is_wrong(&waiter.wait(New(1), TTL)).await, "{content:?}");
        if content[0] == "RPUSH" {
            let Answer::Failed(why) = who.inspect(node).answer().await else { panic!("a list") };
            assert!(why.to_string().contains("holds a list"), "{why}");
        }
        assert!(!who.confirm(node, 7).is_done().await, "{content:?}");
        assert!(!who.set_note(node, "a note").is_done().await, "{content:?}");
        assert_eq!(who.list(node).await, [], "{content:?}");
        assert_eq!(server.command(&["DUMP", NAME]), before, "{content:?}");
    }
}

/// A token of 1,024 bytes is one still.
#[test]
async fn the_longest_token_is_a_holder_like_any_other() {
    let world = World::new(Dialect::Strict).await;
    let server = &world.servers[0];
    let node = world.node(&server.url()).await;
    let seconds = server_us(server) / 1_000_000;
    let token = "x".repeat(1_024);
    let record = format!("quorlock 0000000000000001 {token} {seconds} 0 600000");
    server.command(&["SET", NAME, &record]);
    let who = owner(NAME);
    assert!(!who.acquire(&node, TTL).is_done().await, "another has it");
    assert!(who.seen(&node).await.is_some());
}

/// The fence of a record that is free lies below what is wanted, and so does a part of the block.
#[test]
async fn a_block_of_fences_begins_above_those_that_were_given_out() {
    let world = World::new(Dialect::Strict).await;
    let server = &world.servers[0];
    let node = world.node(&server.url()).await;
    let last = server_us(server);
    for (least, block, fence) in [
        (last, 1, last),
        // From last - 5 to last + 10, were it not for what was given out.
        (last - 5, 16, last + 16),
        (last + 17, 16, last + 32),
        (last + 32, 2, last + 34),
        (last + 34, 1, last + 35),
        (last + 36, 1, last + 36),
    ] {
        let who = owner(NAME);
        let given = who.acquire_fenced(&node, TTL, Proposal { least, block }).fence().await;
        assert_eq!(given, fence, "{block} from {least}");
        assert!(who.release(&node).is_done().await);
        let record = text(server, NAME).expect("a record");
        assert_eq!(record[9..25].parse(), Ok(fence), "{record}");
    }
}

/// Who has the lock and asks for it once more gets the fences that it wants now.
#[test]
async fn a_holder_that_asks_again_has_no_lower_fence_than_it_wants() {
    let world = World::new(Dialect::Strict).await;
    let server = &world.servers[0];
    let client = world.waiting_client(&server.url(), |_| {}).await;
    let waiter = client.waiter(NAME, 1);
    let first = server_us(server);
    for (least, block, fence) in
        [(first, 1, first), (first + 1, 1, first + 1), (first, 2, first + 1), (first, 3, first + 2)]
    {
        let (ticket, proposal) = ((waiter.ticket(New(1)), false), Proposal { least, block });
        let asked = waiter.owner().wait_fenced(client.node(), TTL, ticket, proposal);
        assert_eq!(asked.fence().await, fence, "{block} from {least}");
    }
}

/// What most requests find is done in one piece, without a script's functions: the TTL lies in the record as it
/// was asked for then, and the end of the lease otherwise.
#[test]
async fn a_free_lock_is_taken_and_given_back_by_the_shortest_way() {
    let world = World::new(Dialect::Strict).await;
    let server = &world.servers[0];
    let client = world.waiting_client(&server.url(), |_| {}).await;
    let node = client.node();
    let record = || text(server, NAME).expect("a record");
    let taken = async |least, block| {
        let who = owner(NAME);
        assert!(who.acquire_fenced(node, TTL, Proposal { least, block }).is_done().await);
        (who, record().ends_with(&format!(" {}", TTL.as_millis())))
    };
    let last = server_us(server);
    for (least, block, short) in
        [(last, 16, true), (last + 16, 1, true), (last + 17, 16, true), (last + 32, 1, false)]
    {
        let (who, shortest) = taken(least, block).await;
        assert_eq!(shortest, short, "{block} from {least}");
        let before = record();
        assert!(who.release(node).is_done().await);
        if shortest {
            assert_eq!(record(), [&before[..25], "-", &before[26..]].concat());
        }
    }
    // With somebody in the queue, nothing is short.
    let (who, _) = taken(server_us(server), 1).await;
    let waiter = client.waiter(NAME, 1);
    waiter.wait(New(1), TTL).queued().await;
    assert_eq!(record().as_bytes()[25], b'+');
    assert!(who.release(node).is_done().await);
    assert!(waiter.holds().await);
}

/// The next holder counts from its own request, which this server saw before its clock was set back: the record
/// must not end before the holder's time does.
#[test]
async fn a_lock_that_is_passed_on_by_a_clock_that_was_set_back_lasts_as_long_as_its_holder_counts()
{
    let world = World::unused(Dialect::Strict, |server| server);
    let server = &world.servers[0];
    // It has been voting since before what its clock will be set back to.
    server.clock().jump_ms(-1_500);
    world.mark(world.builder(), world.options()).await;
    server.clock().true_time();
    let client = world.waiting_client(&server.url(), |_| {}).await;
    let (holder, waiter) = (owner(NAME), client.waiter(NAME, 1));
    assert!(holder.acquire(client.node(), TTL).is_done().await);
    let before_us = server_us(server);
    waiter.wait(New(1), TTL).queued().await;
    server.clock().jump_ms(-1_500);
    assert!(holder.release(client.node()).is_done().await);
    assert!(waiter.holds().await);
    let record = text(server, NAME).expect("a record");
    let mut parts = record.rsplit(' ').map(|part| part.parse::<u64>().expect("a number"));
    let mut part = || parts.next().expect("three numbers");
    let end_us = part() * 1_000 + part() + part() * 1_000_000;
    assert!(end_us >= before_us + u64::try_from(TTL.as_micros()).expect("short"), "{record}");
}

fn prefixed(server: &RedisServer, count: usize) {
    let now = server_us(server) / 1_000_000;
    for index in 0..count {
        // Some that are free, and some that are none, lie between them.
        let state = if index % 3 == 0 { '-' } else { ' ' };
        let record = format!("quorlock 0000000000000001{state}token {now} 0 600000");
        let stored = server.command(&["SET", &format!("a prefix:{index:04}"), &record]);
        assert_eq!(stored, Reply::Simple("OK".into()));
        server.command(&["SET", &format!("a prefix:none{index}"), "quorlock is a word here"]);
    }
}

/// More than one look can take in.
#[test]
async fn a_list_names_all_that_is_held_under_a_prefix_and_nothing_else() {
    let world = World::new(Dialect::Strict).await;
    let server = &world.servers[0];
    prefixed(server, 2_000);
    let longest = format!("a prefix:{}", "y".repeat(512));
    let now = server_us(server) / 1_000_000;
    let record = format!("quorlock 0000000000000001 token {now} 0 600000");
    server.command(&["SET", &longest, &record]);
    server.command(&["SET", &format!("{longest}y"), &record]);
    let change = |options: &mut RedisOptions| options.prefix = b"a prefix:".to_vec();
    let node = world.node_with(&server.url(), change).await;
    let names = owner(NAME).list(&node).await;
    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
    let held = (0..2_000).filter(|index| index % 3 != 0).map(|index| format!("{index:04}"));
    let expected: Vec<_> = held.chain([longest[9..].to_owned()]).collect();
    assert_eq!(names, expected);
}

/// The marker of a server with another moment from which on it votes.
fn mark_from(server: &RedisServer, from: &str) {
    let marked = marker(server).expect("it is in use");
    let mut parts: Vec<&str> = marked.split(' ').collect();
    assert_eq!((parts[0], parts[3].len()), ("formed", 16), "{marked}");
    parts[3] = from;
    let set = server.command(&["SET", ":quorlock:set", &parts.join(" ")]);
    assert_eq!(set, Reply::Simple("OK".into()));
}

/// Not by the shortest way either.
#[test]
async fn a_server_with_a_marker_that_makes_no_sense_grants_nothing() {
    let world = World::new(Dialect::Strict).await;
    let server = &world.servers[0];
    let node = world.node(&server.url()).await;
    mark_from(server, "no number at all");
    let proposal = Proposal { least: server_us(server), block: 1 };
    let asked = owner(NAME).acquire_fenced(&node, TTL, proposal).answer().await;
    assert!(matches!(asked, Answer::Failed(_)), "{asked:?}");
    assert_eq!(text(server, NAME), None);
}

/// A part of a millisecond is told as a whole one: who takes it for nothing would count on a vote too early.
#[test]
async fn the_last_of_a_lease_and_of_the_time_without_votes_is_told() {
    let world = World::new(Dialect::Strict).await;
    let server = &world.servers[0];
    let node = world.node(&server.url()).await;
    server.clock().rate(0.0);
    for (left_us, shown_ms) in [(1_500, Some(2)), (1_000, Some(1)), (1, Some(1)), (0, None)] {
        mark_from(server, &format!("{:016}", server_us(server) + left_us));
        let quarantine = owner(NAME).looked(&node).await.quarantine;
        assert_eq!(quarantine, shown_ms.map(Duration::from_millis), "{left_us} us");
        let end = server_us(server) + left_us;
        let (seconds, micros) = (end / 1_000_000, end % 1_000_000);
        server.command(&[
            "SET",
            NAME,
            &format!("quorlock 0000000000000001 t {seconds} {micros} 0"),
        ]);
        let record = owner(NAME).seen(&node).await;
        assert_eq!(record.and_then(|it| it.remaining), shown_ms.map(Duration::from_millis));
    }
}

/// One that ended a moment ago is no lock any more, and one that ends in a moment still is one.
#[test]
async fn a_lock_lasts_until_its_end_by_the_servers_clock_and_no_longer() {
    let world = World::new(Dialect::Strict).await;
    let server = &world.servers[0];
    let node = world.node(&server.url()).await;
    let ended = server_us(server) - 1_000_000;
    let record = |end_us: u64| {
        let (seconds, micros) = (end_us / 1_000_000, end_us % 1_000_000);
        server.command(&[
            "SET",
            NAME,
            &format!("quorlock 0000000000000001 t {seconds} {micros} 0"),
        ]);
    };
    let who = owner(NAME);
    record(ended + 600_000_000);
    assert!(!who.acquire(&node, TTL).is_done().await);
    assert_eq!(who.list(&node).await.len(), 1);
    let left = who.seen(&node).await.expect("held").remaining.expect("not for ever");
    assert!(left > Duration::from_secs(500) && left < Duration::from_secs(600), "{left:?}");
    record(ended);
    assert_eq!(who.list(&node).await, []);
    assert!(who.seen(&node).await.is_none());
    assert!(who.acquire(&node, TTL).is_done().await);
}

/// The command by which several locks were extended at once, as the server has logged it.
fn extended_together(server: &RedisServer) -> Vec<String> {
    let Reply::Array(entries) = server.command(&["SLOWLOG", "GET", "-1"]) else { panic!("no log") };
    let commands = entries.into_iter().filter_map(|entry| match entry {
        Reply::Array(mut parts) => match parts.swap_remove(3) {
            Reply::Array(command) => Some(command),
            _ => None,
        },
        _ => None,
    });
    let part = |part| match part {
        Reply::Bulk(Some(bytes)) => String::from_utf8(bytes).expect("a text"),
        other => panic!("{other:?}"),
    };
    let mut commands = commands.map(|command| command.into_iter().map(part).collect::<Vec<_>>());
    let found = commands.find(|command| command[0] == "EVALSHA" && command[2] == "2");
    found.expect("one command for both")
}

/// The other locks of the request are extended, and their holders told so.
#[test]
async fn an_extension_that_fails_among_others_is_an_error_of_its_own() {
    let world = World::new(Dialect::Strict).await;
    let server = &world.servers[0];
    let node = world.node(&server.url()).await;
    let (first, second) = (owner(NAME), owner("another"));
    for who in [&first, &second] {
        assert!(who.acquire(&node, TTL).is_done().await);
    }
    server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    // What is under way keeps those that follow in the line.
    let under_way = first.inspect(&node);
    let both = [first.extend(&node, TTL), second.extend(&node, TTL)];
    under_way.answer().await;
    for extension in both {
        assert!(extension.is_done().await);
    }
    let mut command = extended_together(server);
    let sent = command.len() - 2;
    // A command, a script, two keys; then five arguments for each of them, of which the second is the TTL.
    let ttl = 5 + 5 + 1;
    assert_eq!(command[ttl], TTL.as_millis().to_string(), "{command:?}");
    command[ttl] = "no number".to_owned();
    command[sent] = server_us(server).to_string();
    let command: Vec<_> = command.iter().map(String::as_str).collect();
    match server.command(&command) {
        Reply::Array(answers) => {
            assert!(matches!(answers[..], [Reply::Int(1..), Reply::Error(_)]), "{answers:?}");
        }
        other => panic!("{other:?}"),
    }
}

/// A waiter that seems to listen, and has not asked for three leases, is not there any more.
#[test]
async fn a_waiter_is_passed_over_once_three_leases_are_over_since_it_has_asked() {
    let world = World::new(Dialect::Strict).await;
    let server = &world.servers[0];
    let client = world.waiting_client(&server.url(), |_| {}).await;
    world.stop_clocks();
    let requests = format!("{NAME}:quorlock:waiters");
    let leases = 3 * u64::try_from(TTL.as_micros()).expect("short");
    for (ago, gets_it) in [(leases, true), (leases + 1, false)] {
        let (holder, waiter) = (owner(NAME), client.waiter(NAME, 1));
        assert!(holder.acquire(client.node(), TTL).is_done().await);
        waiter.wait(New(1), TTL).queued().await;
        let kept = match server.command(&["HGETALL", &requests]) {
            Reply::Array(kept) => kept,
            other => panic!("{other:?}"),
        };
        let [Reply::Bulk(Some(token)), Reply::Bulk(Some(request))] = &kept[..] else {
            panic!("not one waiter: {kept:?}");
        };
        let (token, request) = (String::from_utf8_lossy(token), String::from_utf8_lossy(request));
        let (request, seen) = request.rsplit_once(' ').expect("a moment behind it");
        assert_eq!(seen.parse(), Ok(server_us(server)), "the clock stands still");
        let request = format!("{request} {}", server_us(server) - ago);
        assert_eq!(server.command(&["HSET", &requests, &token, &request]), Reply::Int(0));
        assert!(holder.release(client.node()).is_done().await);
        assert_eq!(waiter.holds().await, gets_it, "{ago} us ago");
        waiter.owner().release(client.node()).answer().await;
    }
}

/// Also for a holder without fences: a client that breaks the lock would pass it on to that one again.
#[test]
async fn a_holder_that_wins_a_server_back_leaves_its_queue() {
    let world = World::new(Dialect::Strict).await;
    let server = &world.servers[0];
    let client = world.waiting_client(&server.url(), |_| {}).await;
    for last in [0, server_us(server)] {
        let (holder, waiter) = (owner(NAME), client.waiter(NAME, 1));
        assert!(holder.acquire(client.node(), TTL).is_done().await);
        waiter.wait(New(1), TTL).queued().await;
        assert_eq!(waiters(server), 1);
        server.command(&["DEL", NAME]);
        assert!(waiter.owner().win_back(client.node(), TTL, last).is_done().await);
        assert!(waiter.holds().await);
        assert_eq!(waiters(server), 0, "with {last}");
        assert!(waiter.owner().release(client.node()).is_done().await);
    }
}
