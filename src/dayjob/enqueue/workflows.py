"""Workflow: jobs that wait for one another and take one another's results. Stored as one request, released node by node."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Self, TypeVar, overload

from dayjob.enqueue.batches import joining
from dayjob.enqueue.builder import Builder
from dayjob.enqueue.hooks import hooked, with_headers
from dayjob.errors import BadOption, NotReady
from dayjob.handlers.gaps import Gap
from dayjob.handlers.registry import check_handle
from dayjob.job import new_id, running
from dayjob.names import check_text
from dayjob.options import EnqueueOptions
from dayjob.store.async_link import awalk
from dayjob.store.codec import WORKFLOW
from dayjob.store.link import walk
from dayjob.store.ops import workflows
from dayjob.store.ops.workflows import (
    POLICIES,
    NewNode,
    NodeList,
    StoredWorkflow,
    WorkflowState,
)
from dayjob.store.steps import Steps, ask

if TYPE_CHECKING:
    from dayjob.enqueue.batches import Senders
    from dayjob.handlers.registry import JobType
    from dayjob.store.ops.workflows import WorkflowChunk

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

#: Longest name of a workflow, in characters.
MAX_NAME = 200
#: Options of `using()` that a node cannot have: it is stored with its workflow and released by other nodes.
_NOT_FOR_NODES = (
    "id",
    "unique_key",
    "unique_for",
    "expires",
    "delay",
    "at",
    "session",
    "on_commit",
    "durability",
)


class Node(Generic[R_co]):
    """A job of a workflow. Pass its `result` to nodes that need it."""

    __slots__ = ("id", "job_type", "name", "nodes", "number")

    def __init__(self, nodes: NodeList, number: int, job_type: JobType[..., ..., Any], job_id: str) -> None:
        self.nodes = nodes
        #: Its number among the nodes that are stored with it, from 0.
        self.number = number
        self.job_type = job_type
        self.name = job_type.name
        #: The id of its job.
        self.id = job_id

    def __repr__(self) -> str:
        return f"<node {self.number} {self.name!r}>"

    @property
    def result(self) -> R_co:
        """What its handler will return: to pass to other nodes, as an argument or inside lists and dicts of arguments."""
        gap: Any = Gap(self)
        return gap  # type: ignore[no-any-return] # it stands for the result, which does not exist yet


AnyNode = Node[Any]


class _Adder:
    """Adds nodes to a list of nodes."""

    def __init__(self, builder: Builder, workflow_id: str, source: str | int | None, nodes: NodeList) -> None:
        #: Identifies the workflow, in Redis and in consoles.
        self.id = workflow_id
        self._builder = builder
        self._source = source
        self._nodes = nodes
        self._started = False

    @overload
    def add(
        self, handle: JobType[..., P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Node[R]: ...
    @overload
    def add(self, handle: JobType[..., P, R], /, *args: P.args, **kwargs: P.kwargs) -> Node[R]: ...
    @overload
    def add(
        self, handle: JobType[..., ..., Coroutine[Any, Any, R]], /, *args: Any, on_failure: Literal["continue", "skip"],
        after: Iterable[AnyNode] = ..., on_failure_of: Iterable[AnyNode] = ..., **kwargs: Any,
    ) -> Node[R | None]: ...  # fmt: skip
    @overload
    def add(
        self, handle: JobType[..., ..., R], /, *args: Any, on_failure: Literal["continue", "skip"],
        after: Iterable[AnyNode] = ..., on_failure_of: Iterable[AnyNode] = ..., **kwargs: Any,
    ) -> Node[R | None]: ...  # fmt: skip
    @overload
    def add(
        self, handle: JobType[..., ..., Coroutine[Any, Any, R]], /, *args: Any, after: Iterable[AnyNode],
        on_failure_of: Iterable[AnyNode] = ..., on_failure: Literal["stop"] = ..., **kwargs: Any,
    ) -> Node[R]: ...  # fmt: skip
    @overload
    def add(
        self, handle: JobType[..., ..., R], /, *args: Any, after: Iterable[AnyNode],
        on_failure_of: Iterable[AnyNode] = ..., on_failure: Literal["stop"] = ..., **kwargs: Any,
    ) -> Node[R]: ...  # fmt: skip
    @overload
    def add(
        self, handle: JobType[..., ..., Coroutine[Any, Any, R]], /, *args: Any, on_failure_of: Iterable[AnyNode],
        on_failure: Literal["stop"] = ..., **kwargs: Any,
    ) -> Node[R]: ...  # fmt: skip
    @overload
    def add(
        self, handle: JobType[..., ..., R], /, *args: Any, on_failure_of: Iterable[AnyNode],
        on_failure: Literal["stop"] = ..., **kwargs: Any,
    ) -> Node[R]: ...  # fmt: skip

    def add(self, handle: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Add a job that runs when the nodes have completed whose results it is given, and those in `after`.

        With `on_failure_of` it runs when one of these nodes is dead, and is skipped if none is. `on_failure` is what its
        own failure does to the nodes that need it: they wait until it was retried ("stop"), go on with None in the place of
        its result ("continue"), or are skipped, unless they need others too ("skip"). Raises BadArguments, BadOption,
        TooLarge.
        """
        if self._started:
            raise BadOption(
                "this workflow has started: nodes are added by its jobs, with job.workflow.add(...)"
            )
        check_handle(handle, "add()")
        after, watches = kwargs.pop("after", ()), kwargs.pop("on_failure_of", ())
        policy = kwargs.pop("on_failure", "stop")
        if policy not in POLICIES:
            raise BadOption(f"add({handle.name}): on_failure={policy!r}: give one of {', '.join(POLICIES)}")
        raw, gaps = handle.encode_with_gaps(args, kwargs)
        number = len(self._nodes.nodes)
        takes = [(number - self._own(node), *path) for node, path in gaps]
        needs = {self._own(node) for node in (*after, *(node for node, _ in gaps))}
        watched = {self._own(node) for node in watches}
        if needs & watched:
            both = self._nodes.nodes[min(needs & watched)].job.job.name
            raise BadOption(
                f"add({handle.name}): it needs {both!r} and runs on the failure of it: choose one"
            )
        options = self._options(handle)
        with hooked(self._builder.hooks, handle.name, 1, options) as outgoing:
            options = with_headers(options, outgoing) if self._builder.hooks else options
            new_job = self._builder.new_job(handle.name, raw, options, self.id, number, takes)
            outgoing.jobs = (new_job.job,)
        self._nodes.add(NewNode(new_job, tuple(sorted(needs)), tuple(sorted(watched)), policy=policy))
        return Node(self._nodes, number, handle, new_job.job.id)

    def _own(self, node: Any) -> int:
        if not isinstance(node, Node):
            raise BadOption(f"{node!r} is no node: give what add() returned")
        if node.nodes is not self._nodes:
            raise BadOption(f"{node!r} belongs to another workflow, or was stored before")
        return node.number

    def _options(self, handle: JobType[..., ..., Any]) -> EnqueueOptions:
        options = handle.enqueue_options
        for name in _NOT_FOR_NODES:
            if getattr(options, name) is not None:
                raise BadOption(
                    f"add({handle.name}): a node cannot have using({name}=...), because it is stored with its workflow"
                )
        if self._source is not None and options.source is None and options.inherit:
            return replace(options, source=self._source)
        return options


class RunningWorkflow(_Adder):
    """The workflow of a running job. Nodes that the job adds are stored in the step that completes it, or not at all."""

    def __repr__(self) -> str:
        return f"<workflow {self.id}>"


@dataclass(frozen=True, slots=True)
class WorkflowProgress:
    """What became of the nodes of a workflow."""

    state: WorkflowState
    total: int
    completed: int
    skipped: int
    dead: int
    cancelled: int
    #: How many have not ended: they wait for others, are stored as jobs, or failed and run again.
    left: int


class Workflow(_Adder):
    """Jobs that wait for one another. `pool.workflow(name)` makes one, `enqueuer.workflow(id)` finds one that was started."""

    def __init__(
        self, senders: Senders, workflow_id: str, name: str | None, source: str | int | None = None
    ) -> None:
        super().__init__(senders.sync.builder, workflow_id, source, NodeList())
        self._senders = senders
        #: What it does; "" for one that was found by its id.
        self.name = name or ""
        self._started = name is None

    def __repr__(self) -> str:
        return f"<workflow {self.name!r} {self.id}>"

    def start(self) -> Self:
        """Store the workflow, in one request. Nothing was stored before. Raises BadOption, NotReady, StoreError."""
        sender, chunk = self._senders.sync, self._chunk()
        commit = sender.commit_for_workflow(chunk)
        if commit is not None:
            commit(lambda: sender.send_chunk(chunk))
        else:
            sender.send_chunk(chunk)
        return self

    async def astart(self) -> Self:
        """`start`, awaited."""
        sender, chunk = self._senders.asynchronous(), self._chunk()
        commit = sender.commit_for_workflow(chunk)
        if commit is None:
            await sender.send_chunk(chunk)
        else:
            await sender.register(commit, lambda: self._senders.sync.send_chunk(chunk))
        return self

    def progress(self) -> WorkflowProgress:
        """What became of its nodes. Raises NotReady if there is no such workflow, and StoreError."""
        return walk(self._senders.sync, self._progress())

    async def aprogress(self) -> WorkflowProgress:
        """`progress`, awaited."""
        return await awalk(self._senders.asynchronous(), self._progress())

    def cancel(self) -> bool:
        """End its nodes: those that wait never run, those that run are asked to stop within seconds.

        False if all had ended. Raises NotReady, StoreError.
        """
        return walk(self._senders.sync, self._cancel())

    async def acancel(self) -> bool:
        """`cancel`, awaited."""
        return await awalk(self._senders.asynchronous(), self._cancel())

    def result(self, node: Node[T]) -> T | None:
        """What a node returned; None if it has not completed. Raises StoreError."""
        return _decoded(node, *walk(self._senders.sync, read_results(self._builder, self.id, [node.number])))

    async def aresult(self, node: Node[T]) -> T | None:
        """`result`, awaited."""
        sender = self._senders.asynchronous()
        return _decoded(node, *await awalk(sender, read_results(self._builder, self.id, [node.number])))

    def _chunk(self) -> WorkflowChunk:
        if self._started:
            raise BadOption("this workflow has started")
        if not self._nodes.nodes:
            raise BadOption(f"workflow {self.name!r} has no nodes: add(...) some")
        if joining.get() is not None:
            raise BadOption("a workflow cannot join a batch: start it outside of the block of the batch")
        attempt = running.get()
        if attempt is not None and attempt.atomic:
            raise NotReady(
                "an atomic job cannot start a workflow: the workflow would exist even if the job fails. Start it in a job "
                "that is not atomic"
            )
        self._started = True
        return workflows.WorkflowChunk(self.id, self.name, self._nodes)

    def _progress(self) -> Steps[WorkflowProgress]:
        found = yield from self._read()
        return progress_of(found)

    def _cancel(self) -> Steps[bool]:
        sink = self._builder.sink
        if sink is not None:
            return bool(sink.workflows.change(self.id, "cancel", -1).changed)
        answer = yield from ask(workflows.change_workflow(self._builder.keys, self.id, "cancel"))
        if answer.answer == "gone":
            raise _gone(self.id)
        return answer.changed > 0

    def _read(self) -> Steps[StoredWorkflow]:
        sink = self._builder.sink
        found: StoredWorkflow | None = sink.workflows.read(self.id) if sink is not None else None
        if sink is None:
            found = yield from workflows.read(self._builder.keys, self.id)
        if found is None:
            raise _gone(self.id)
        return found


def _decoded(node: Node[T], raw: bytes | None) -> T | None:
    return node.job_type.decode_result(raw) if raw else None


def read_results(builder: Builder, workflow_id: str, numbers: Sequence[int]) -> Steps[list[bytes | None]]:
    """The results of nodes, as JSON; None for those that have none."""
    if builder.sink is not None:
        known: list[bytes | None] = builder.sink.workflows.results(workflow_id, numbers)
        return known
    return (yield from ask(workflows.results(builder.keys, workflow_id, numbers)))


def _gone(workflow_id: str) -> NotReady:
    return NotReady(
        f"there is no workflow {workflow_id!r}: it was not started yet, or ended more than a week ago"
    )


def progress_of(found: StoredWorkflow) -> WorkflowProgress:
    """The progress of a stored workflow."""
    return WorkflowProgress(
        found.state, found.total, found.count("completed"), found.count("skipped"), found.count("dead"),
        found.count("cancelled"), found.count("waiting", "released", "failed"),
    )  # fmt: skip


def new_workflow(senders: Senders, name: str, source: str | int | None = None) -> Workflow:
    """A workflow that is stored when it starts. Raises BadOption."""
    check_text(name, "workflow(): name")
    if not 0 < len(name) <= MAX_NAME:
        raise BadOption(f"workflow(): the name has {len(name)} characters: give 1 to {MAX_NAME}")
    return Workflow(senders, WORKFLOW + new_id(), name, source)
