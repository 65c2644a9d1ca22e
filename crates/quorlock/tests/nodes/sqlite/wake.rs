//! Grant messages between the users of one file.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;

use quorlock::Settings;
use quorlock::node::TicketNumber::New;
use quorlock::node::{self, ClientId, NodeOptions};
use quorlock::runtime::{Runtime, TokioRuntime};
use quorlock_testkit::conformance::{Client, owner};
use quorlock_testkit::{DEADLINE, eventually, eventually_async};

use super::{LONG, Place};

impl Place {
    fn sockets(&self) -> PathBuf {
        self.directory.path().join("locks.db-wake")
    }

    pub(super) fn tickets(&self) -> i64 {
        self.sql().query_row("SELECT count(*) FROM ticket", [], |row| row.get(0)).expect("a count")
    }

    async fn client(&self) -> (ClientId, Client) {
        let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime::current());
        let id = ClientId::random(&*runtime);
        let nodes =
            node::open([self.url()], &Settings::default(), &NodeOptions::default(), &runtime, id);
        let node = nodes.expect("a good URL").remove(0);
        node.ready().await.expect("a file that keeps locks");
        (id, Client::with(id, node))
    }
}

/// It would look by itself only when the record ends, which is too late here.
#[tokio::test]
async fn a_waiter_is_notified() {
    let place = Place::new();
    let (here, there) = (place.locker().await, place.locker().await);
    for _ in 0..20 {
        let guard = here.lock("a").await.unwrap();
        let waiter = tokio::spawn(there.lock("a").wait(DEADLINE).into_future());
        eventually_async("it waits", async || place.tickets() == 1).await;
        guard.release().await.unwrap();
        waiter.await.unwrap().unwrap().release().await.unwrap();
    }
    assert_eq!(fs::read_dir(place.sockets()).unwrap().count(), 1, "one for each that waits");
    drop((here, there));
    eventually("it is gone", || fs::read_dir(place.sockets()).unwrap().count() == 0);
}

/// More at once than fit into a socket.
#[tokio::test]
async fn no_grant_message_gets_lost_in_a_crowd() {
    let place = Place::new();
    let (here, there) = (place.locker().await, place.locker().await);
    let names = || (0..2_000).map(|index| format!("crowd/{index}"));
    let mut guards = Vec::new();
    for name in names() {
        guards.push(here.lock(name).await.unwrap());
    }
    let waiters: Vec<_> =
        names().map(|name| tokio::spawn(there.lock(name).wait(DEADLINE).into_future())).collect();
    eventually_async("all wait", async || place.tickets() == 2_000).await;
    // While nothing is read.
    guards.into_iter().for_each(drop);
    for waiter in waiters {
        waiter.await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_lie_changes_nothing() {
    let place = Place::new();
    let (id, client) = place.client().await;
    let (other, _deaf) = place.client().await;
    let holder = owner("a");
    let waiter = client.waiter("a", 7);
    assert!(holder.acquire(client.node(), LONG).is_done().await);
    let asked = waiter.wait(New(1), LONG);
    assert!(asked.queued().await.will_notify);
    let liar = UnixDatagram::unbound().unwrap();
    liar.connect(place.sockets().join(id.to_string())).unwrap();
    for lie in [&7_u64.to_le_bytes()[..], &8_u64.to_le_bytes(), b"", b"x", &[7; 100]] {
        liar.send(lie).unwrap();
        assert_eq!(client.grant_messages().await, []);
    }
    let deaf = UnixDatagram::unbound().unwrap().connect(place.sockets().join(other.to_string()));
    assert!(deaf.is_err(), "a client that does not wait needs no socket");
    assert!(holder.release(client.node()).is_done().await);
    assert_eq!(client.grant_messages().await, [waiter.message_for(&asked)]);
}

#[tokio::test]
async fn a_waiter_that_cannot_be_notified_is_not_promised_anything_and_polls() {
    let place = Place::new();
    let (_, client) = place.client().await;
    let (here, there) = (place.locker().await, place.locker().await);
    fs::remove_dir_all(place.sockets()).unwrap();
    fs::write(place.sockets(), "in the way").unwrap();
    let holder = owner("a");
    assert!(holder.acquire(client.node(), LONG).is_done().await);
    assert!(!client.waiter("a", 1).wait(New(1), LONG).queued().await.will_notify);
    assert!(holder.release(client.node()).is_done().await);

    let guard = here.lock("b").await.unwrap();
    let waiter = tokio::spawn(there.lock("b").wait(DEADLINE).into_future());
    eventually_async("it waits", async || place.tickets() == 1).await;
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

/// Though nobody waits any more.
#[tokio::test]
async fn sockets_of_the_dead_go_when_the_file_is_opened() {
    let place = Place::new();
    place.locker().await;
    for index in 0..100 {
        // Closed without being removed, as after a kill.
        drop(UnixDatagram::bind(place.sockets().join(format!("{index:016x}"))).unwrap());
    }
    eventually_async("they are gone", async || {
        place.locker().await;
        fs::read_dir(place.sockets()).unwrap().count() == 0
    })
    .await;
}

#[tokio::test]
async fn a_socket_that_was_removed_is_made_again_with_the_next_question() {
    let place = Place::new();
    let ((_, client), (_, other)) = (place.client().await, place.client().await);
    let holder = owner("a");
    assert!(holder.acquire(other.node(), LONG).is_done().await);
    let waiter = client.waiter("a", 1);
    assert!(waiter.wait(New(1), LONG).queued().await.will_notify);
    fs::remove_dir_all(place.sockets()).unwrap();
    let asked = waiter.wait(New(1), LONG);
    assert!(asked.queued().await.will_notify);
    assert!(holder.release(other.node()).is_done().await);
    assert_eq!(client.grant_messages().await, [waiter.message_for(&asked)]);
}

#[tokio::test]
async fn a_waiter_in_a_file_that_is_replaced_is_told_to_ask_again() {
    let place = Place::new();
    let (_, client) = place.client().await;
    let holder = owner("a");
    assert!(holder.acquire(client.node(), LONG).is_done().await);
    client.waiter("a", 1).wait(New(1), LONG).queued().await;
    fs::remove_file(&place.file).unwrap();
    assert_eq!(client.grant_messages().await, []);
    assert_eq!(client.interruptions(), 1);
}

/// Killed with their tickets, for names that nobody wants any more.
#[tokio::test]
async fn tickets_of_the_dead_do_not_pile_up() {
    let place = Place::new();
    let (_, living) = place.client().await;
    let holder = owner("a");
    assert!(holder.acquire(living.node(), LONG).is_done().await);
    let kept = living.waiter("a", 1);
    kept.wait(New(1), LONG).queued().await;
    for _ in 0..20 {
        // As one that never came to be told of anything.
        let (_, dead) = place.client().await;
        for name in ["a", "b"] {
            let holder = owner(name);
            drop(holder.acquire(dead.node(), LONG));
            drop(dead.waiter(name, 1).wait(New(1), LONG).answer().await);
        }
    }
    eventually_async("only the living have tickets", async || {
        let (_, next) = place.client().await;
        let single = owner("single");
        if single.acquire(next.node(), LONG).is_done().await {
            assert!(single.release(next.node()).is_done().await);
        }
        place.tickets() == 1
    })
    .await;
}
