"""``cluster.transport``: how messages between nodes share links and hosts, and what they cost there: TCP, gRPC, an RDMA stack.

Keys and their rules alone. What they do is simulated in ``simulator.engine.production``, where state.py reads them, and plainly in
``simulator.engine.textbook.messages``. ``HostWork`` of
``calibrate.fit.server`` has the costs of hosts in closed form. Where nothing is given, ``simulator.resolve.practice`` fills in what
gRPC costs.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from simulator.base.spec import Moderate, Rate, Seconds, Terse

Carrier = Literal["grpc", "given"]
"""What carries tensors between processes, where that decides what they cost hosts; given: what the scenario says."""


class Transport(Terse):
    """Between nodes: how concurrent messages share a node's link, and their costs beyond their bytes.

    By default messages share fairly. What they cost hosts is taken from practice where
    TensorFlow's gRPC carries them (docs/practice.md), and is nothing else.
    """

    terse: ClassVar[tuple[str, ...]] = ("software", "weights_of")

    software: Carrier | None = Field(
        default=None,
        description="what carries tensors between processes. grpc: what gRPC of TensorFlow costs hosts for each tensor and byte, and "
        "a coordinator for a step, is taken from practice where it is not given; given: messages cost hosts what these keys say, "
        "or nothing; left out: grpc with parameter servers, else given",
    )

    discipline: Literal["fair", "in-order", "streams", "weighted"] = Field(
        default="fair",
        description="fair: all share max-min fairly (fair queueing, or many short messages); in-order: one at a time in order of arrival, "
        "in each direction of each node; streams: a few at a time; weighted: each message has a random weight (TCP without fair queues)",
    )
    streams: int | None = Field(default=None, ge=1, le=100_000, description="messages at a time, with discipline = streams")
    weight_sigma: Annotated[float, Field(gt=0, le=3)] | None = Field(
        default=None, description="with discipline = weighted: the standard deviation of the logarithm of a message's lognormal weight"
    )
    weights_of: Literal["message", "transfer"] = Field(
        default="message",
        description="with discipline = weighted: what draws a weight: each message, or all messages together that a node has asked for, "
        "or sends, at the same time (a pull from all servers, a push to all)",
    )
    queue_s: Seconds | None = Field(
        default=None,
        ge=0,
        description="with discipline = weighted: one queue for all, in which each message on its way keeps so much waiting before its "
        "sender's link, as time at the link's rate; a message that starts later waits behind it, and behind what waits at its receiver",
    )
    buffer_s: Annotated[Seconds, Field(gt=0)] | None = Field(default=None, description="with queue_s: the most that waits in one queue")
    requests_per_pull: int = Field(
        default=1, ge=0, le=100, description="with queue_s: short messages to a server, one after the other, that a pull waits for"
    )
    wire_bytes_per_byte: float = Field(
        default=1.0, ge=1, le=100, description="bytes that cross the link for each byte of a tensor (headers, encoding)"
    )
    cpu_per_message_s: Seconds = Field(
        default=0.0, ge=0, description="work of each of the two hosts on each tensor of a message, one at a time; 0: as software says"
    )
    copy_per_byte_s: Annotated[Moderate, Field(ge=0, le=1)] = Field(
        default=0.0,
        description="work of each of the two hosts on a byte of a tensor besides, before the message stands for the link (serialising) "
        "and after it has come in whole (parsing), as gRPC does: so not while it crosses",
    )
    cpu_per_byte_s: Annotated[Moderate, Field(ge=0, le=1)] = Field(
        default=0.0, description="work of each of the two hosts on a byte, sent or received, while it crosses the link"
    )
    flow_cap_bytes_per_s: Annotated[Rate, Field(gt=0)] | None = Field(
        default=None, description="most that one connection gets, however free the link is (one TCP stream seldom fills a NIC)"
    )
    incast_loss: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="bandwidth into a node with k flows is divided by 1 + incast_loss x (k - incast_flows), for k above incast_flows",
    )
    incast_flows: int = Field(default=1, ge=1, le=100_000, description="flows into a node that cost nothing yet")

    @model_validator(mode="after")
    def _consistent(self) -> Transport:
        for discipline, key, given, example in (
            ("streams", "streams", self.streams, "streams = 4"),
            ("weighted", "weight_sigma", self.weight_sigma, "weight_sigma = 0.5"),
        ):
            if self.discipline == discipline and given is None:
                raise ValueError(f'discipline = "{discipline}" needs {key}; give it, such as {example}')
            if self.discipline != discipline and given is not None:
                raise ValueError(f'{key} ({given}) is of discipline = "{discipline}", not of "{self.discipline}"; leave one of them out')
        if self.weights_of != "message" and self.weight_sigma is None:
            raise ValueError(f'weights_of ("{self.weights_of}") is of discipline = "weighted", not of "{self.discipline}"; leave it out')
        if self.queue_s is not None and (self.weight_sigma is None or self.buffer_s is None):
            raise ValueError(f'queue_s ({self.queue_s}) needs discipline = "weighted" and buffer_s; give them, such as buffer = "20 ms"')
        if self.buffer_s is not None and self.queue_s is None:
            raise ValueError(f"buffer_s ({self.buffer_s}) changes nothing without queue_s; give that too, or leave it out")
        if self.incast_flows > 1 and not self.incast_loss:
            raise ValueError(f"incast_flows ({self.incast_flows}) changes nothing without incast_loss; give that too, such as 0.05")
        return self

    @property
    def has_hosts(self) -> bool:
        """Whether hosts spend time on messages, take them in turns or weigh them."""
        return self.at_a_time is not None or self.weight_sigma is not None or self.works_on_messages

    @property
    def works_on_messages(self) -> bool:
        """Whether hosts work on a message before it stands for the link, and after it has come."""
        return self.cpu_per_message_s > 0 or self.copy_per_byte_s > 0

    @property
    def at_a_time(self) -> int | None:
        """Messages that a direction of a node carries at a time; none if there is no such limit."""
        return 1 if self.discipline == "in-order" else self.streams
