# The runtime with one bug planted, to prove that the experiment meant for it catches it.
ARG RUNTIME_IMAGE=flashruntime/runtime:local
FROM ${RUNTIME_IMAGE}
ARG PLANT
LABEL dev.flashruntime.owner=flashruntime
USER 0:0
COPY chaos/payloads/planted_${PLANT}.py /tmp/plant.py
RUN python3 /tmp/plant.py && rm /tmp/plant.py
USER 10001:10001
