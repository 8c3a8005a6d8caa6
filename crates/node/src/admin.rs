//! For operators and their tools, over HTTP: `/metrics`, `/health`, `/ready`. A thread of its own asks the node's, so that slow
//! readers hold up nobody; whether the node answers is what `/health` tells.

use crate::node::SharedNode;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Sleep, sleep, timeout};

/// How long the node may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How many may ask at once.
const ASKED: usize = 16;
/// How many may be connected at once, each with an open file: others wait until one of them has gone.
pub(crate) const VISITS: usize = 32;
/// After how long a connection is ended, whatever comes over it: those who say nothing keep out nobody for longer.
const VISIT: Duration = Duration::from_mins(1);

/// What is asked of the node.
#[derive(Clone, Copy, Debug)]
enum What {
    Metrics,
    Health,
    Ready,
}

/// A question, and where its answer goes.
pub(crate) struct Question {
    what: What,
    answer: oneshot::Sender<Result<String, String>>,
}

/// Serves an address, on a thread of its own, until whoever answers is gone.
///
/// # Errors
/// If the thread or its runtime cannot be made.
pub(crate) fn serve(listener: TcpListener) -> io::Result<mpsc::Receiver<Question>> {
    let (ask, questions) = mpsc::channel(ASKED);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("admin".to_owned()).spawn(move || {
        let served = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let listener = Door { listener, free: Arc::new(Semaphore::new(VISITS)) };
            let gone = ask.clone();
            let router = Router::new()
                .route("/metrics", get(metrics))
                .route("/health", get(health))
                .route("/ready", get(ready))
                .with_state(ask);
            axum::serve(listener, router).with_graceful_shutdown(async move { gone.closed().await }).await
        });
        if let Err(error) = served {
            tracing::error!("metrics and health are served no more: {error}");
        }
    })?;
    Ok(questions)
}

/// Lets in [`VISITS`], each for [`VISIT`].
struct Door {
    listener: tokio::net::TcpListener,
    free: Arc<Semaphore>,
}

impl axum::serve::Listener for Door {
    type Io = Visit;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Visit, SocketAddr) {
        let place = self.free.clone().acquire_owned().await.expect("it is never closed");
        let (stream, from) = axum::serve::Listener::accept(&mut self.listener).await;
        (Visit { stream, end: Box::pin(sleep(VISIT)), _place: place }, from)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends.
struct Visit {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl Visit {
    fn poll_end(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.end.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Visit {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_end(context)?;
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Visit {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_end(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Answers what is asked.
pub(crate) async fn answer(node: SharedNode, mut questions: mpsc::Receiver<Question>) {
    while let Some(Question { what, answer }) = questions.recv().await {
        let told = {
            let node = node.borrow();
            match (&node.failure, what) {
                (Some(why), _) => Err(why.clone()),
                (None, What::Metrics) => Ok(node.metrics()),
                (None, What::Ready) if !node.core.sees_most() => {
                    Err("most nodes are away: no operation would find a majority".to_owned())
                }
                (None, What::Health | What::Ready) => Ok("ok\n".to_owned()),
            }
        };
        // Whoever asked may have gone.
        drop(answer.send(told));
    }
}

type Asking = State<mpsc::Sender<Question>>;

async fn metrics(State(ask): Asking) -> impl IntoResponse {
    let (status, text) = told(&ask, What::Metrics).await;
    let kind =
        if status == StatusCode::OK { "text/plain; version=0.0.4; charset=utf-8" } else { "text/plain" };
    (status, [(CONTENT_TYPE, kind)], text)
}

async fn health(State(ask): Asking) -> impl IntoResponse {
    told(&ask, What::Health).await
}

async fn ready(State(ask): Asking) -> impl IntoResponse {
    told(&ask, What::Ready).await
}

async fn told(ask: &mpsc::Sender<Question>, what: What) -> (StatusCode, String) {
    let asked = async {
        let (answer, answered) = oneshot::channel();
        ask.send(Question { what, answer }).await.ok()?;
        answered.await.ok()
    };
    match timeout(PATIENCE, asked).await {
        Ok(Some(Ok(text))) => (StatusCode::OK, text),
        Ok(Some(Err(why))) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        Ok(None) => (StatusCode::SERVICE_UNAVAILABLE, "the node has stopped\n".to_owned()),
        Err(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("the node has not answered within {PATIENCE:?}\n"))
        }
    }
}
